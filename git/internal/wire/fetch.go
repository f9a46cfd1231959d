package wire

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

const (
	maxBeforePack    = 16 << 20 // bytes of an answer before its pack
	defaultPackBytes = 16 << 30
)

// A FetchRequest describes a pack: it holds the wanted objects and all that they lead
// to, without what the haves lead to.
type FetchRequest struct {
	Wants    []object.ID // at least one
	Haves    []object.ID // commits that are held, whose objects deltas may be based on; sent in one round, so keep them few
	Shallow  []object.ID // commits that are held without their parents
	Depth    int         // commits of history; 0 means all
	Filter   string      // objects to leave out (git rev-list --filter): blob:none, tree:0
	MaxBytes int64       // bytes of the pack; 0 means 16 GiB
}

// Fetch requests a pack. ErrUnsupported means that the server has no shallow fetches
// or no filters; ErrUnreachable, that it refuses a wanted object. The end of ctx also
// ends the reading of the pack. The caller closes the response.
func (r *Remote) Fetch(ctx context.Context, q FetchRequest) (p *FetchResponse, err error) {
	err = r.try(ctx, Fetch, func() (err error) {
		if r.g.caps == nil {
			err = r.greet(ctx, nil)
		}
		if err == nil {
			p, err = r.fetch(ctx, q)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (r *Remote) fetch(ctx context.Context, q FetchRequest) (*FetchResponse, error) {
	for _, id := range q.Wants {
		if id.Format() != r.g.format() || id.IsZero() {
			return nil, fmt.Errorf("%q is no %s object id", id, r.g.format())
		}
	}
	for feature, needed := range map[string]bool{"filter": q.Filter != "", "shallow": q.Depth > 0 || len(q.Shallow) > 0} {
		if needed && !r.Supports(feature) {
			return nil, fmt.Errorf("fetch with %s: %w", feature, ErrUnsupported)
		}
	}
	s, err := r.sendRequest(ctx, r.fetchRequest(q))
	if err != nil {
		return nil, err
	}
	p := &FetchResponse{Format: r.g.format(), ctx: ctx, r: r, a: newAnswer(ctx, s, maxBeforePack)}
	if r.g.version == 2 {
		err = r.readSections(p)
	} else {
		err = r.readNegotiation(p, q.Depth > 0)
	}
	if err != nil {
		p.a.release(false)
		return nil, err
	}
	p.a.setLimit(cmp.Or(q.MaxBytes, defaultPackBytes))
	return p, nil
}

// fetchRequest returns the command fetch of version 2; or the upload-request of
// versions 0 and 1 and the whole negotiation after it, in one message.
func (r *Remote) fetchRequest(q FetchRequest) *request {
	req, capabilities := &request{}, ""
	if r.g.version == 2 {
		req = r.command("fetch")
		if len(q.Haves) > 0 {
			req.line("thin-pack")
		}
		req.line("no-progress")
		req.line("ofs-delta")
	} else {
		capabilities = r.wantCapabilities(q)
	}
	for _, id := range q.Wants {
		req.line("want %s%s", id, capabilities)
		capabilities = ""
	}
	for _, id := range q.Shallow {
		req.line("shallow %s", id)
	}
	if q.Depth > 0 {
		req.line("deepen %d", q.Depth)
	}
	if q.Filter != "" {
		req.line("filter %s", q.Filter)
	}
	if r.g.version < 2 {
		req.flush()
	}
	for _, id := range q.Haves {
		req.line("have %s", id)
	}
	req.line("done")
	if r.g.version == 2 {
		req.flush()
	}
	return req
}

// wantCapabilities returns the capabilities of the server that a request of version 0
// uses. Some servers insist on multi_ack.
func (r *Remote) wantCapabilities(q FetchRequest) string {
	var b strings.Builder
	for _, names := range [][]string{
		{"multi_ack_detailed", "multi_ack"}, {"side-band-64k", "side-band"}, {"ofs-delta"}, {"thin-pack"}, {"no-progress"}, {"filter"},
	} {
		for _, name := range names {
			if !r.Supports(name) || name == "thin-pack" && len(q.Haves) == 0 || name == "filter" && q.Filter == "" {
				continue
			}
			b.WriteString(" " + name)
			break
		}
	}
	if f, ok := r.g.caps["object-format"]; ok {
		b.WriteString(" object-format=" + f)
	}
	if r.Supports("agent") {
		b.WriteString(" agent=headgate")
	}
	return b.String()
}

// readSections reads the sections of a version 2 answer up to its pack.
func (r *Remote) readSections(p *FetchResponse) error {
	for {
		k, line, err := p.a.line()
		switch {
		case err != nil:
			return err
		case k == pktData && line == "packfile":
			return nil
		case k == pktData:
			err = r.addShallow(p, line)
		case k != pktDelim:
			err = protocolf("the answer holds no pack")
		}
		if err != nil {
			return err
		}
	}
}

// readNegotiation reads what precedes the pack in versions 0 and 1.
func (r *Remote) readNegotiation(p *FetchResponse, shallow bool) error {
	for k := pktData; shallow && k != pktFlush; {
		var line string
		var err error
		if k, line, err = p.a.line(); err == nil && k == pktData {
			err = r.addShallow(p, line)
		} else if err == nil && k != pktFlush {
			err = protocolf("the list of shallow commits does not end in a flush")
		}
		if err != nil {
			return err
		}
	}
	p.raw = !r.Supports("side-band-64k") && !r.Supports("side-band")
	for {
		// What follows is a line of text, the pack, or a band with a piece of the
		// pack.
		b, err := p.a.br.Peek(pktHeader + 1)
		if err != nil || string(b[:4]) == "PACK" || b[4] < ' ' {
			return err
		}
		_, line, err := p.a.line()
		if err == nil && line != "NAK" && !strings.HasPrefix(line, "ACK ") {
			err = protocolf("%.80q instead of an acknowledgment", line)
		}
		if err != nil {
			return err
		}
	}
}

// addShallow takes a line of what precedes a pack.
func (r *Remote) addShallow(p *FetchResponse, line string) error {
	hex, ok := strings.CutPrefix(line, "shallow ")
	if !ok {
		return nil
	}
	id, err := r.parseID(hex)
	p.Shallow = append(p.Shallow, id)
	return err
}

// The bands of a side-band (gitprotocol-common).
const (
	bandPack     = 1
	bandProgress = 2
	bandError    = 3
)

// A FetchResponse is the pack that answers a Fetch. Reading ends with io.EOF only if
// the server sent all of it. Its checksum is not checked. It must be closed.
type FetchResponse struct {
	Format  object.Format // the hash function that names objects
	Shallow []object.ID   // commits in the pack without their parents

	ctx   context.Context
	r     *Remote
	a     *answer
	rest  int  // bytes of the pack that are left in the current pkt-line
	raw   bool // there are no bands: the rest of the stream is the pack
	begun bool
	err   error // sticky
}

// Close ends the answer and, if that was not read to its end, the conversation as
// [Remote.Close] does.
func (p *FetchResponse) Close() error {
	p.a.release(p.err == io.EOF && p.r.g.version == 2)
	if p.err != io.EOF {
		p.r.Close()
	}
	return nil
}

// Read implements [io.Reader].
func (p *FetchResponse) Read(b []byte) (n int, err error) {
	for p.err == nil && p.rest == 0 && !p.raw {
		if p.err = p.nextBand(); p.err == io.EOF && !p.begun {
			p.err = io.ErrUnexpectedEOF
		}
	}
	if p.err == nil && p.raw {
		if n, p.err = p.a.br.Read(b); p.err == nil {
			p.err = p.a.spend(n)
		}
	} else if p.err == nil {
		n, p.err = p.a.br.Read(b[:min(len(b), p.rest)])
		if p.rest -= n; p.err == io.EOF {
			p.err = io.ErrUnexpectedEOF
		}
	}
	if p.err != nil && p.err != io.EOF {
		p.err = wrap(p.ctx, Pack, p.r.t.String(), p.err)
	}
	return n, p.err
}

// nextBand reads the next pkt-line; if it is a piece of the pack, only up to the
// first byte of that. The error is io.EOF at the flush that ends the bands, and
// nowhere else.
func (p *FetchResponse) nextBand() error {
	k, n, err := p.a.header()
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case k == pktFlush && p.begun:
		return io.EOF
	case k != pktData:
		return protocolf("the answer holds no pack")
	case n == 0:
		return nil
	}
	band, err := p.a.br.ReadByte()
	n--
	if err == nil && band == bandPack {
		p.rest, p.begun = n, p.begun || n > 0
		return nil
	}
	text := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(p.a.br, text)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	message, isError := strings.CutPrefix(string(text), "RR ") // of an error line outside of any band
	switch {
	case err != nil || band == bandProgress:
		return err
	case band == bandError:
		return remoteError(string(text))
	case band == 'E' && isError:
		return remoteError(message)
	}
	return protocolf("band %d", band)
}
