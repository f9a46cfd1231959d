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
	k, line, err := p.line()
	if err == nil && k == pktData && line == serviceLine {
		if k, _, err = p.line(); err == nil && k != pktFlush {
			err = protocolf("no flush after the name of the service")
		}
		if err == nil {
			k, line, err = p.line()
		}
	}
	if err != nil {
		return greeting{}, err
	}
	if k != pktData && k != pktFlush {
		return greeting{}, protocolf("the greeting starts with a mark")
	}
	g := greeting{caps: map[string]string{}, symrefs: map[string]string{}}
	switch {
	case k == pktFlush: // no refs, and no capabilities to go with them
		return g, nil
	case line == "version 2":
		g.version = 2
		err = g.readCapabilities(p)
	case line == "version 1":
		g.version = 1
		if k, line, err = p.line(); err == nil && k == pktData {
			err = g.readFirst(line)
		}
	default:
		err = g.readFirst(line)
	}
	if err == nil && g.format() != "sha1" && g.format() != "sha256" {
		err = protocolf("object format %.80q", g.format())
	}
	return g, err
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
