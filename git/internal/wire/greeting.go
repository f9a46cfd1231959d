package wire

import (
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

const maxGreeting = 256 << 10 // bytes of a greeting, without the refs of version 0

// A greeting is what a server says about itself.
type greeting struct {
	version int
	caps    map[string]string // capability, and the text after its "="
	symrefs map[string]string // versions 0 and 1: symbolic refs and their targets
	first   string            // versions 0 and 1: the first line of the refs; "" if there are none
}

func (g *greeting) format() string {
	if f := g.caps["object-format"]; f != "" {
		return f
	}
	return "sha1"
}

func (g *greeting) hexLen() int {
	if g.format() == "sha256" {
		return 64
	}
	return 40
}

// readGreeting reads a greeting: of version 2 to its end, of the others up to
// and with the first ref.
func readGreeting(p *pktReader) (greeting, error) {
	g := greeting{caps: map[string]string{}, symrefs: map[string]string{}}
	k, line, err := firstLine(p)
	if err == nil && k == pktData && line == "version 1" {
		g.version = 1
		k, line, err = p.line()
	}
	switch {
	case err != nil:
	case k == pktFlush: // no refs, and no capabilities to go with them
	case k != pktData:
		err = protocolf("the greeting starts with a mark")
	case line == "version 2" && g.version == 0:
		g.version = 2
		err = g.readCapabilities(p)
	default:
		err = g.readFirst(line)
	}
	if f := g.format(); err == nil && f != "sha1" && f != "sha256" {
		err = protocolf("object format %.80q", f)
	}
	return g, err
}

// firstLine reads a line, after that which names the service over HTTP.
func firstLine(p *pktReader) (pktKind, string, error) {
	k, line, err := p.line()
	if err != nil || k != pktData || line != serviceLine {
		return k, line, err
	}
	if k, _, err = p.line(); err != nil {
		return 0, "", err
	}
	if k != pktFlush {
		return 0, "", protocolf("no flush after the name of the service")
	}
	return p.line()
}

// readCapabilities reads the capabilities of version 2, one in a line.
func (g *greeting) readCapabilities(p *pktReader) error {
	for {
		k, line, err := p.line()
		switch {
		case err != nil:
			return err
		case k == pktFlush:
			return g.checkCommands()
		case k != pktData:
			return protocolf("the list of capabilities does not end in a flush")
		}
		name, value, _ := strings.Cut(line, "=")
		g.caps[name] = value
	}
}

func (g *greeting) checkCommands() error {
	for _, command := range []string{"ls-refs", "fetch"} {
		if _, ok := g.caps[command]; !ok {
			return protocolf("the server does not offer the command %s", command)
		}
	}
	return nil
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
	g.first = ref
	return nil
}
