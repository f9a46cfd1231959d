// Package wire is the client side of the Git protocol: it asks a remote repository
// for its refs and for packs, over HTTP(S) and SSH.
//
// # Protocol
//
// The client requests version 2 (gitprotocol-v2); if a server ignores the request,
// the client speaks version 0 or 1 (gitprotocol-pack). Over HTTP it speaks only the
// smart protocol (gitprotocol-http); the error for a dumb server says so. Both object
// formats, SHA-1 and SHA-256, are understood.
//
// [Remote.Refs] and [Remote.Fetch] are one request each. Before the first of them the
// client requests the server's greeting, unless the capabilities are known. In
// versions 0 and 1 the greeting carries all refs, so Refs only requests a greeting.
//
// # Limits
//
// Nothing a server sends is trusted. Greetings, lists of refs, answers before the
// pack, packs, redirects, error pages and messages all have a limit in bytes; the
// lists have one in entries too. Exceeding one is [ErrLimit]. Names of refs that git
// check-ref-format would refuse are skipped. Text from a server is cut to one line of
// 1 KiB without control characters before it is repeated.
//
// Every method returns soon after its context ends, whatever the server does.
//
// # Errors
//
// Every error is an [*Error]: it tells the phase and the URL without user information
// or query. It wraps one of the Err values of this package, a [*HostKeyError], the
// cause of the context's end, or an error of the network.
//
// # Credentials
//
// Over HTTP the http.Client adds the credentials. A redirect is followed for the
// greeting only, as git does; it may lead to another origin (scheme, host, port) only
// if the redirected request carried no credentials, and never from https to http.
//
// Over SSH the server's host key must be in the given known_hosts; this check cannot
// be turned off.
package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

const (
	maxGreeting     = 256 << 10 // bytes of a greeting, without the refs of version 0
	maxRefBytes     = 256 << 20 // bytes of a list of refs
	maxRefs         = 500_000   // refs in a result
	maxCapabilities = 1 << 10   // bytes of what [Remote.Capabilities] returns
)

// A Remote is a conversation with a repository. It serves one call at a time,
// and none while the pack of a Fetch is open.
type Remote struct {
	t       Transport
	c       conn     // nil until something is sent
	g       greeting // without capabilities while nothing is known of the server
	assumed bool     // g is that of an earlier conversation: the server has not answered yet
}

// New returns a conversation with the repository that t leads to, and sends nothing.
// capabilities are what [Remote.Capabilities] returned before, or "". With
// capabilities the first request is sent without a greeting; if the server refuses
// it, the Remote requests a greeting and sends the request again. Capabilities that
// cannot be used count as "".
func New(t Transport, capabilities string) *Remote {
	if capabilities == "" {
		return &Remote{t: t}
	}
	g := greeting{version: 2, caps: map[string]string{}}
	for line := range strings.Lines(capabilities) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		g.caps[name] = value
	}
	if g.check() != nil {
		return &Remote{t: t}
	}
	return &Remote{t: t, g: g, assumed: true}
}

// Capabilities returns what [New] needs to know of the server: the capabilities that
// requests depend on, one in a line. It is "" if a greeting is always needed: for
// versions 0 and 1, over SSH, and if the server redirects.
func (r *Remote) Capabilities() string {
	c, ok := r.c.(*httpConn)
	if !ok || r.g.version != 2 || c.redirect != nil {
		return ""
	}
	var b strings.Builder
	for _, name := range []string{"agent", "fetch", "ls-refs", "object-format"} {
		if value, ok := r.g.caps[name]; ok {
			if name == "agent" {
				value = "" // no request depends on the version of the agent
			}
			b.WriteString(name + "=" + value + "\n")
		}
	}
	if b.Len() > maxCapabilities {
		return ""
	}
	return b.String()
}

// Greet requests the greeting of the server unless its capabilities are known. With
// proof it does so too if the server has not answered yet. Format, Supports and
// WantsAny need the greeting.
func (r *Remote) Greet(ctx context.Context, proof bool) error {
	if r.g.caps != nil && !(proof && r.assumed) {
		return nil
	}
	err := ctx.Err()
	if err == nil {
		err = r.greet(ctx, nil)
	}
	if err != nil {
		return wrap(ctx, Advertisement, r.t.String(), err)
	}
	return nil
}

// Format returns the hash function that names objects.
func (r *Remote) Format() object.Format { return r.g.format() }

// Supports reports whether Fetch can make use of a feature of the server:
// "filter" or "shallow".
func (r *Remote) Supports(feature string) bool {
	if r.g.version == 2 {
		return slices.Contains(strings.Fields(r.g.caps["fetch"]), feature)
	}
	_, ok := r.g.caps[feature]
	return ok
}

// WantsAny reports whether the server promises to send a commit that no ref points
// to. Without the promise it may still send it, or refuse with [ErrUnreachable]: then
// the branch must be deepened until the commit appears.
func (r *Remote) WantsAny() bool {
	return r.g.version == 2 || r.Supports("allow-any-sha1-in-want") || r.Supports("allow-reachable-sha1-in-want")
}

// Close ends the conversation. The next request begins a new one, with the
// capabilities that are known.
func (r *Remote) Close() {
	if r.c != nil {
		known := r.Capabilities()
		r.c.close()
		*r = *New(r.t, known)
	}
}

// Refs returns the refs with the full names given (HEAD, refs/heads/main), or
// when exact is false those whose names begin with one of them, in the server's
// order, invalid names left out. It stops reading when all refs with exact names
// were seen. No match is no error, except that a repository without any refs is
// ErrEmpty.
func (r *Remote) Refs(ctx context.Context, exact bool, names ...string) (refs []object.Ref, err error) {
	for _, name := range names {
		if exact && !validRef(name) || name == "" || len(name) > maxMessage || strings.ContainsAny(name, "\x00\n") {
			return nil, wrap(ctx, LsRefs, r.t.String(), fmt.Errorf("%.80q is not the name of a ref", name))
		}
	}
	err = r.try(ctx, LsRefs, func() (err error) {
		s := &refCollector{exact: exact, names: names}
		if r.g.version < 2 {
			err = r.greet(ctx, s)
		}
		if err == nil && r.g.version == 2 {
			err = r.listRefs(ctx, s)
		}
		if err == nil && s.total == 0 {
			err = r.checkEmpty(ctx, len(names) > 0)
		}
		refs = s.refs
		return err
	})
	if err != nil {
		return nil, err
	}
	return refs, nil
}

// refusals are the errors with which a server may answer a request without a greeting
// if its capabilities have changed.
var refusals = []error{ErrAuth, ErrNotFound, ErrProtocol, ErrRemote, ErrUnsupported, ErrRedirect}

// try calls do. If do fails because the assumed capabilities may be wrong, try
// requests a greeting and calls do again.
func (r *Remote) try(ctx context.Context, phase Phase, do func() error) error {
	err := ctx.Err()
	if err == nil {
		err = do()
	}
	if err == nil {
		r.assumed = false
		return nil
	}
	err = wrap(ctx, phase, r.t.String(), err)
	is := func(kind error) bool { return errors.Is(err, kind) }
	if r.assumed && slices.ContainsFunc(refusals, is) && !is(ErrBusy) && !is(ErrUnreachable) {
		if err = r.greet(ctx, nil); err == nil {
			err = do()
		}
		err = wrap(ctx, phase, r.t.String(), err)
	}
	r.assumed = false
	return err
}

// greet reads the greeting. A server of version 0 or 1 includes its refs, among which
// s selects if it is not nil.
func (r *Remote) greet(ctx context.Context, s *refCollector) (err error) {
	if r.c == nil {
		if r.c, err = r.t.dial(ctx); err != nil {
			return inPhase(Dial, err)
		}
	}
	from, err := r.c.greet(ctx)
	if err != nil {
		return inPhase(Advertisement, err)
	}
	a := newAnswer(ctx, from, maxGreeting)
	g, err := readGreeting(a.pktReader)
	if err == nil && r.g.caps != nil && !r.assumed && g.version != r.g.version {
		err = protocolf("the server changes from version %d to %d", r.g.version, g.version)
	}
	if err != nil {
		a.release(false)
		return inPhase(Advertisement, err)
	}
	r.g, r.assumed = g, false
	if g.version < 2 {
		a.setLimit(maxRefBytes)
		err = r.readAdvertised(a.pktReader, s)
	}
	a.release(err == nil)
	return err
}

// sendRequest sends a request. It connects and requests a greeting first if the connection
// needs that.
func (r *Remote) sendRequest(ctx context.Context, req *request) (from stream, err error) {
	if r.c == nil {
		if r.c, err = r.t.dial(ctx); err != nil {
			return nil, inPhase(Dial, err)
		}
	}
	if !r.c.ready() {
		if err := r.greet(ctx, nil); err != nil {
			return nil, err
		}
	}
	return r.c.sendRequest(ctx, req.b)
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

// listRefs runs the command ls-refs of version 2.
func (r *Remote) listRefs(ctx context.Context, s *refCollector) error {
	req := r.command("ls-refs")
	req.line("peel")
	req.line("symrefs")
	for _, name := range s.names {
		req.line("ref-prefix %s", name)
	}
	req.flush()
	from, err := r.sendRequest(ctx, req)
	if err != nil {
		return err
	}
	a := newAnswer(ctx, from, maxRefBytes)
	a.smallReads = s.exact
	k := pktData
	for k == pktData && err == nil && !s.complete() {
		var line string
		if k, line, err = a.line(); err == nil && k == pktData {
			err = r.addListed(s, line)
		} else if err == nil && k != pktFlush {
			err = protocolf("the list of refs does not end in a flush")
		}
	}
	a.release(err == nil && k == pktFlush)
	return err
}

// addListed takes a line of an answer to ls-refs: id, name, attributes.
func (r *Remote) addListed(s *refCollector, line string) (err error) {
	hex, rest, ok := strings.Cut(line, " ")
	if !ok {
		return protocolf("%.80q is not a ref", line)
	}
	name, attributes, _ := strings.Cut(rest, " ")
	if hex == "unborn" || !s.take(name) {
		return nil
	}
	ref := object.Ref{Name: name}
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

// readAdvertised reads the refs of a version 0 greeting.
func (r *Remote) readAdvertised(p *pktReader, s *refCollector) error {
	if r.g.firstRef == "" {
		return nil // the flush was read in place of a first ref
	}
	for line := r.g.firstRef; ; {
		if s != nil {
			if err := r.addAdvertised(s, line); err != nil {
				return err
			}
		}
		k, next, err := p.line()
		switch {
		case err != nil:
			return err
		case k == pktFlush:
			return nil
		case k != pktData:
			return protocolf("the list of refs does not end in a flush")
		}
		line = next
	}
}

// addAdvertised takes a line of a version 0 greeting: id and name, where the
// name of an annotated tag comes again with ^{} and the id it leads to.
func (r *Remote) addAdvertised(s *refCollector, line string) error {
	hex, name, ok := strings.Cut(line, " ")
	switch {
	case !ok:
		return protocolf("%.80q is not a ref", line)
	case hex == "shallow" || name == "capabilities^{}":
		return nil
	}
	tag, peels := strings.CutSuffix(name, "^{}")
	last := len(s.refs) - 1
	if peels && (last < 0 || s.refs[last].Name != tag) || !peels && !s.take(name) {
		return nil
	}
	id, err := r.parseID(hex)
	switch {
	case err != nil:
		return err
	case peels:
		s.refs[last].Peeled = id
		return nil
	}
	ref := object.Ref{Name: name, ID: id}
	if to := r.g.symrefs[name]; validRef(to) {
		ref.Symref = to
	}
	return s.add(ref)
}

// checkEmpty returns ErrEmpty if the repository has no refs at all, and nil if it
// only has no match.
func (r *Remote) checkEmpty(ctx context.Context, filtered bool) error {
	if r.g.version != 2 || !filtered {
		return ErrEmpty
	}
	req := r.command("ls-refs")
	req.flush()
	from, err := r.sendRequest(ctx, req)
	if err != nil {
		return err
	}
	a := newAnswer(ctx, from, maxGreeting)
	a.smallReads = true
	k, _, err := a.line()
	a.release(err == nil && k == pktFlush)
	if err == nil && k == pktFlush {
		return ErrEmpty
	}
	return err
}

// parseID parses an object id of the remote's object format.
func (r *Remote) parseID(s string) (object.ID, error) {
	id, err := object.ParseID(s)
	if err != nil || id.Format() != r.g.format() {
		return object.ID{}, protocolf("%.80q is no %s object id", s, r.g.format())
	}
	return id, nil
}

// A greeting is what a server says about itself.
type greeting struct {
	version  int
	caps     map[string]string // capability, and the text after its "="
	symrefs  map[string]string // versions 0 and 1: symbolic refs and their targets
	firstRef string            // versions 0 and 1: the first line of the refs; "" if there are none
}

func (g *greeting) format() object.Format {
	if g.caps["object-format"] == object.SHA256.String() {
		return object.SHA256
	}
	return object.SHA1
}

// check returns an error for a greeting on which no request can be built.
func (g *greeting) check() error {
	for _, command := range []string{"ls-refs", "fetch"} {
		if _, ok := g.caps[command]; !ok && g.version == 2 {
			return protocolf("the server does not offer the command %s", command)
		}
	}
	if f, ok := g.caps["object-format"]; ok && f != g.format().String() {
		return protocolf("object format %.80q", f)
	}
	return nil
}

const serviceLine = "# service=git-upload-pack"

// readGreeting reads a greeting: in version 2 to its end, else up to the first ref,
// inclusive.
func readGreeting(p *pktReader) (greeting, error) {
	g := greeting{caps: map[string]string{}, symrefs: map[string]string{}}
	k, line, err := p.line()
	if err == nil && k == pktData && line == serviceLine { // the name of the service, over HTTP
		if k, _, err = p.line(); err == nil && k != pktFlush {
			err = protocolf("no flush after the name of the service")
		}
		if err == nil {
			k, line, err = p.line()
		}
	}
	if err == nil && k == pktData && line == "version 1" {
		g.version = 1
		k, line, err = p.line()
	}
	switch {
	case err != nil:
		return g, err
	case k == pktFlush: // no refs, and no capabilities to go with them
		return g, nil
	case k != pktData:
		return g, protocolf("the greeting starts with a mark")
	case line == "version 2" && g.version == 0:
		g.version = 2
		err = g.readCapabilities(p)
	default:
		err = g.readFirst(line)
	}
	if err == nil {
		err = g.check()
	}
	return g, err
}

// readCapabilities reads the capabilities of version 2, one in a line.
func (g *greeting) readCapabilities(p *pktReader) error {
	for {
		k, line, err := p.line()
		switch {
		case err != nil || k == pktFlush:
			return err
		case k != pktData:
			return protocolf("the list of capabilities does not end in a flush")
		}
		name, value, _ := strings.Cut(line, "=")
		g.caps[name] = value
	}
}

// readFirst reads the first ref of version 0, with the capabilities behind a NUL.
func (g *greeting) readFirst(line string) error {
	ref, caps, _ := strings.Cut(line, "\x00")
	hex, _, _ := strings.Cut(ref, " ")
	if _, err := object.ParseID(hex); err != nil {
		return protocolf("%.80q is neither a version nor a ref", line)
	}
	for _, c := range strings.Fields(caps) {
		name, value, _ := strings.Cut(c, "=")
		if name == "symref" {
			from, to, _ := strings.Cut(value, ":")
			g.symrefs[from] = to
			continue
		}
		g.caps[name] = value
	}
	g.firstRef = ref
	return nil
}

// A refCollector collects the refs that are asked for.
type refCollector struct {
	exact bool
	names []string
	refs  []object.Ref
	total int // refs that the server has named
}

// complete reports whether nothing more can match.
func (s *refCollector) complete() bool { return s.exact && len(s.refs) == len(s.names) }

// take counts a ref that the server has named, and reports whether it is wanted.
func (s *refCollector) take(name string) bool {
	s.total++
	wanted := len(s.names) == 0
	for _, n := range s.names {
		wanted = wanted || name == n || !s.exact && strings.HasPrefix(name, n)
	}
	return wanted && validRef(name)
}

func (s *refCollector) add(ref object.Ref) error {
	if len(s.refs) == maxRefs {
		return fmt.Errorf("%w: more than %d refs match", ErrLimit, maxRefs)
	}
	s.refs = append(s.refs, ref)
	return nil
}

// validRef reports whether git check-ref-format accepts name, or it is one of
// the names in capitals, such as HEAD, that have no slash.
func validRef(name string) bool {
	if strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") ||
		strings.ContainsAny(name, "~^:?*[\\\x7f") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }) {
		return false
	}
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return len(parts) > 1 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}
