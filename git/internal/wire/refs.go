package wire

import (
	"context"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

// Limits of Refs when the query names none.
const (
	defaultRefBytes = 256 << 20
	defaultRefs     = 500_000
)

// A RefQuery says which refs are wanted: those with a name in Exact and those
// with a prefix in Prefixes; all refs if both are empty.
type RefQuery struct {
	Exact    []string // full names: HEAD, refs/heads/main
	Prefixes []string // starts of full names: refs/tags/
	Peel     bool     // tell what tags point to
	Symrefs  bool     // tell what symbolic refs point to
	MaxRefs  int      // refs in the result; 0 means 500,000
	MaxBytes int64    // bytes of the server's list; 0 means 256 MiB
}

// A Ref is a name that a remote repository gives to an object.
type Ref struct {
	Name   string
	ID     object.ID
	Peeled object.ID // the object that an annotated tag leads to; zero for other refs
	Symref string    // the ref that a symbolic ref points to; "" for other refs
}

// Refs returns the refs that q asks for, in the server's order, invalid names
// left out. It stops reading when all refs of an exact query were seen. No match
// is no error, except that a repository without any refs is ErrEmpty.
func (r *Remote) Refs(ctx context.Context, q RefQuery) ([]Ref, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(ctx, LsRefs, r.t.String(), err)
	}
	refs, err := r.choose(ctx, q)
	if again, greeted := r.again(ctx, err); again {
		refs, err = r.choose(ctx, q)
	} else {
		err = greeted
	}
	if err != nil {
		return nil, wrap(ctx, LsRefs, r.t.String(), err)
	}
	return refs, nil
}

// choose returns the refs that q asks for, from a list of the server's.
func (r *Remote) choose(ctx context.Context, q RefQuery) ([]Ref, error) {
	s, err := newSelection(q)
	if err == nil && r.g.version == 2 {
		err = r.listRefs(ctx, s)
	} else if err == nil {
		err = r.readRefs(ctx, s)
	}
	if err == nil && s.total == 0 {
		err = r.checkEmpty(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	return s.refs, nil
}

// listRefs runs the command ls-refs of version 2.
func (r *Remote) listRefs(ctx context.Context, s *selection) error {
	req := r.command("ls-refs")
	if s.Peel {
		req.line("peel")
	}
	if s.Symrefs {
		req.line("symrefs")
	}
	for _, p := range s.Exact {
		req.line("ref-prefix %s", p)
	}
	for _, p := range s.Prefixes {
		req.line("ref-prefix %s", p)
	}
	req.flush()
	from, err := r.ask(ctx, req)
	if err != nil {
		return err
	}
	a := newAnswer(from, s.MaxBytes)
	a.sips = len(s.Prefixes) == 0 && len(s.Exact) > 0
	a.attach(ctx)
	whole, err := r.readList(a.pktReader, s)
	a.release(whole)
	return err
}

// readList reads the answer to ls-refs, as far as it is of interest.
func (r *Remote) readList(p *pktReader, s *selection) (whole bool, err error) {
	for !s.complete() {
		k, line, err := p.line()
		switch {
		case err != nil:
			return false, err
		case k == pktFlush:
			return true, nil
		case k != pktData:
			return false, protocolf("the list of refs does not end in a flush")
		}
		if err := r.addListed(s, line); err != nil {
			return false, err
		}
	}
	return false, nil
}

// addListed takes a line of an answer to ls-refs: id, name, attributes.
func (r *Remote) addListed(s *selection, line string) error {
	hex, rest, ok := strings.Cut(line, " ")
	if !ok {
		return protocolf("%.80q is not a ref", line)
	}
	if hex == "unborn" {
		return nil
	}
	name, attributes, _ := strings.Cut(rest, " ")
	ref := Ref{Name: name}
	if !s.take(name) {
		return nil
	}
	var err error
	if ref.ID, err = r.parseID(hex); err != nil {
		return err
	}
	for _, attr := range strings.Fields(attributes) {
		key, value, _ := strings.Cut(attr, ":")
		switch {
		case key == "peeled":
			if ref.Peeled, err = r.parseID(value); err != nil {
				return err
			}
		case key == "symref-target" && validRef(value):
			ref.Symref = value
		}
	}
	return s.add(ref)
}

// readRefs chooses among the refs of a version 0 greeting.
func (r *Remote) readRefs(ctx context.Context, s *selection) error {
	a, err := r.refs(ctx, s.MaxBytes)
	if err != nil {
		return err
	}
	a.sips = r.c.ready() && len(s.Prefixes) == 0 && len(s.Exact) > 0
	whole, err := r.readAdvertised(a.pktReader, s)
	a.release(whole)
	return err
}

// readAdvertised reads the refs of version 0. A connection that can only go on
// after the last of them is read to the end.
func (r *Remote) readAdvertised(p *pktReader, s *selection) (whole bool, err error) {
	k, line := pktData, r.g.first
	if line == "" {
		return true, nil // the flush was read in place of a first ref
	}
	for k == pktData {
		complete := s.complete()
		peels, err := r.addAdvertised(s, line)
		if err != nil {
			return false, err
		}
		if complete && !peels && r.c.ready() {
			return false, nil
		}
		if k, line, err = p.line(); err != nil {
			return false, err
		}
	}
	if k != pktFlush {
		return false, protocolf("the list of refs does not end in a flush")
	}
	return true, nil
}

// addAdvertised takes a line of a version 0 greeting: id and name, where the
// name of an annotated tag comes again with ^{} and the id it leads to.
func (r *Remote) addAdvertised(s *selection, line string) (peels bool, err error) {
	hex, name, ok := strings.Cut(line, " ")
	switch {
	case !ok:
		return false, protocolf("%.80q is not a ref", line)
	case hex == "shallow" || name == "capabilities^{}":
		return false, nil
	}
	tag, peels := strings.CutSuffix(name, "^{}")
	if peels && !s.peels(tag) || !peels && !s.take(name) {
		return peels, nil
	}
	id, err := r.parseID(hex)
	switch {
	case err != nil:
		return false, err
	case peels:
		s.refs[len(s.refs)-1].Peeled = id
		return true, nil
	}
	ref := Ref{Name: name, ID: id}
	if to := r.g.symrefs[name]; s.Symrefs && validRef(to) {
		ref.Symref = to
	}
	return false, s.add(ref)
}

// checkEmpty tells a repository without refs from one without a match.
func (r *Remote) checkEmpty(ctx context.Context, q RefQuery) error {
	if r.g.version != 2 || len(q.Exact)+len(q.Prefixes) == 0 {
		return ErrEmpty
	}
	req := r.command("ls-refs")
	req.flush()
	from, err := r.ask(ctx, req)
	if err != nil {
		return err
	}
	a := newAnswer(from, maxGreeting)
	a.sips = true
	a.attach(ctx)
	k, _, err := a.line()
	a.release(err == nil && k == pktFlush)
	if err == nil && k == pktFlush {
		return ErrEmpty
	}
	return err
}

// command starts a request of version 2.
func (r *Remote) command(name string) *request {
	req := &request{}
	req.line("command=%s", name)
	if _, ok := r.g.caps["agent"]; ok {
		req.line("agent=headgate")
	}
	if f, ok := r.g.caps["object-format"]; ok {
		req.line("object-format=%s", f)
	}
	req.delim()
	return req
}
