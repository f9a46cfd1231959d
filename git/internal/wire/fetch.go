package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

const (
	maxBeforePack    = 16 << 20 // bytes of an answer before its pack
	defaultPackBytes = 16 << 30
)

// A FetchRequest says what a pack shall hold: the wanted objects and all they
// lead to, less what the haves lead to.
type FetchRequest struct {
	Wants    []object.ID // at least one
	Haves    []object.ID // commits that are held; sent in one round, so keep them few
	Shallow  []object.ID // commits that are held without their parents
	Depth    int         // commits of history; 0 means all
	Deepen   bool        // Depth counts from Shallow on, not from Wants
	Filter   string      // objects to leave out (git rev-list --filter): blob:none, tree:0
	ThinPack bool        // deltas may be against objects that the pack does not hold
	MaxBytes int64       // bytes of the pack; 0 means 16 GiB, less no limit
	// Progress is told what the server says while it works, line by line and up
	// to 1 MiB in all, from within Read. Nil asks the server to be silent.
	Progress func(line string)
}

// A FetchResponse is the answer to a Fetch. It must be closed.
type FetchResponse struct {
	// Pack is the pack, which ends with io.EOF only if the server sent all of it.
	// It implements io.WriterTo. Its checksum is not checked.
	Pack      io.Reader
	Shallow   []object.ID // commits in the pack without their parents
	Unshallow []object.ID // commits of the request's Shallow that now have them
	Acks      []object.ID // haves that the server has, if it tells; not all of them need be here

	a *answer
	p *packReader
}

// Close ends the response, read to its end or not.
func (f *FetchResponse) Close() error {
	if f.a != nil {
		f.a.release(f.p.err == io.EOF && f.p.again)
		f.a = nil
	}
	return nil
}

// Fetch asks for a pack. ErrUnsupported means that the server has no shallow
// fetches or no filters; ErrUnreachable, that it refuses a wanted object. ctx
// ends the response too.
func (r *Remote) Fetch(ctx context.Context, q FetchRequest) (*FetchResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(ctx, Fetch, r.t.String(), err)
	}
	f, err := r.fetch(ctx, q)
	if again, greeted := r.again(ctx, err); again {
		f, err = r.fetch(ctx, q)
	} else {
		err = greeted
	}
	if err != nil {
		return nil, wrap(ctx, Fetch, r.t.String(), err)
	}
	return f, nil
}

func (r *Remote) fetch(ctx context.Context, q FetchRequest) (*FetchResponse, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := r.checkFetch(q); err != nil {
		return nil, err
	}
	version2 := r.g.version == 2
	req := r.fetchRequest0(q)
	if version2 {
		req = r.fetchRequest2(q)
	}
	s, err := r.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	f := &FetchResponse{a: newAnswer(s, maxBeforePack)}
	f.a.attach(ctx)
	banded := true
	if version2 {
		err = r.readSections(f)
	} else {
		banded, err = r.readNegotiation(f, q.Depth > 0)
	}
	if err != nil {
		f.a.release(false)
		return nil, err
	}
	switch f.a.allow(q.MaxBytes); {
	case q.MaxBytes == 0:
		f.a.allow(defaultPackBytes)
	case q.MaxBytes < 0:
		f.a.allow(math.MaxInt64)
	}
	f.p = &packReader{ctx: ctx, url: r.t.String(), pkt: f.a.pktReader, raw: !banded, again: version2, progress: progressLines{to: q.Progress}}
	f.Pack = f.p
	return f, nil
}

// check refuses what makes no request.
func (q *FetchRequest) check() error {
	switch {
	case len(q.Wants) == 0:
		return errors.New("no object is wanted")
	case q.Depth < 0 || q.Deepen && q.Depth == 0:
		return fmt.Errorf("depth %d", q.Depth)
	case strings.ContainsFunc(q.Filter, notGraphic) || len(q.Filter) > maxMessage:
		return fmt.Errorf("filter %.80q", q.Filter)
	}
	return nil
}

// checkFetch refuses what cannot be asked of this server.
func (r *Remote) checkFetch(q FetchRequest) error {
	for _, id := range slices.Concat(q.Wants, q.Haves, q.Shallow) {
		if len(id.String()) != r.g.hexLen() || id.IsZero() {
			return fmt.Errorf("%q is no %s object id", id, r.g.format())
		}
	}
	for _, need := range []struct {
		feature string
		needed  bool
	}{
		{"filter", q.Filter != ""},
		{"shallow", q.Depth > 0 || len(q.Shallow) > 0},
		{"deepen-relative", q.Deepen && r.g.version != 2}, // part of shallow in version 2
	} {
		if need.needed && !r.Supports(need.feature) {
			return fmt.Errorf("fetch with %s: %w", need.feature, ErrUnsupported)
		}
	}
	return nil
}

func notGraphic(c rune) bool { return c <= ' ' || c > '~' }

// fetchRequest2 is the command fetch of version 2.
func (r *Remote) fetchRequest2(q FetchRequest) *request {
	req := r.command("fetch")
	for _, o := range []struct {
		on   bool
		line string
	}{
		{q.ThinPack, "thin-pack"},
		{q.Progress == nil, "no-progress"},
		{true, "ofs-delta"},
		{q.Depth > 0, fmt.Sprintf("deepen %d", q.Depth)},
		{q.Deepen, "deepen-relative"},
		{q.Filter != "", "filter " + q.Filter},
	} {
		if o.on {
			req.line("%s", o.line)
		}
	}
	for _, id := range q.Wants {
		req.line("want %s", id)
	}
	for _, id := range q.Shallow {
		req.line("shallow %s", id)
	}
	for _, id := range q.Haves {
		req.line("have %s", id)
	}
	req.line("done")
	req.flush()
	return req
}

// readSections reads the sections of a version 2 answer up to its pack.
func (r *Remote) readSections(f *FetchResponse) error {
	for {
		k, section, err := f.a.line()
		switch {
		case err != nil:
			return err
		case k != pktData:
			return protocolf("the answer holds no pack")
		case section == "packfile":
			return nil
		}
		for k, line := pktData, section; k != pktDelim; {
			if k, line, err = f.a.line(); err != nil {
				return err
			}
			switch k {
			case pktData:
				if err := r.addInfo(f, line); err != nil {
					return err
				}
			case pktDelim:
			default:
				return protocolf("the answer holds no pack")
			}
		}
	}
}

// addInfo takes a line of what precedes a pack.
func (r *Remote) addInfo(f *FetchResponse, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	list := map[string]*[]object.ID{"shallow": &f.Shallow, "unshallow": &f.Unshallow, "ACK": &f.Acks}[word]
	if list == nil {
		return nil
	}
	hex, _, _ := strings.Cut(rest, " ")
	id, err := r.parseID(hex)
	if err == nil {
		*list = append(*list, id)
	}
	return err
}
