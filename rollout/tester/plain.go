package tester

import (
	"slices"
	"strings"
)

// A plain reads the bodies that rollout controllers send, one of them at every
// check of a gate, in a fraction of the time that encoding/json takes. It knows an object of
// texts, one of which is metadata, an object of texts; texts of ASCII without
// escapes; names in the one case, each once; no white space; no more than
// maxPlain bytes, for what is read of it keeps all of it. It gives up at
// everything else.
type plain struct{ rest string }

const maxPlain = 1 << 10

// readPlain reads a payload, and of its metadata the keys given, nil for all.
// When it returns false the body is for encoding/json, and p as it was.
func readPlain(text []byte, p *payload, keys []string) bool {
	if len(text) > maxPlain {
		return false
	}
	d := plain{string(text)}
	var out payload
	metadata := false
	if !d.object(func(name string) bool {
		if name == "metadata" {
			if metadata {
				return false
			}
			metadata = true
			return d.object(func(key string) bool {
				value, ok := d.text()
				if keys != nil && !slices.Contains(keys, key) {
					return ok
				}
				if _, twice := out.Metadata[key]; twice || !ok {
					return false
				}
				if out.Metadata == nil {
					out.Metadata = make(map[string]string, 4)
				}
				out.Metadata[key] = value
				return true
			})
		}
		field := out.plainField(name)
		value, ok := d.text()
		if field == nil || *field != "" || !ok || len(value) == 0 {
			return false
		}
		*field = value
		return true
	}) || len(d.rest) > 0 {
		return false
	}
	*p = out
	return true
}

// plainField returns the field of a name, nil when there is none that every webhook has.
func (p *payload) plainField(name string) *string {
	switch name {
	case "name":
		return &p.Name
	case "namespace":
		return &p.Namespace
	case "phase":
		return &p.Phase
	case "checksum":
		return &p.Checksum
	}
	return nil
}

// object reads an object with at least one member, whose values are read by value.
func (d *plain) object(value func(name string) bool) bool {
	for sep := byte('{'); ; sep = ',' {
		if !d.next(sep) {
			return sep == ',' && d.next('}')
		}
		name, ok := d.text()
		if !ok || !d.next(':') || !value(name) {
			return false
		}
	}
}

// next reads one character.
func (d *plain) next(c byte) bool {
	if len(d.rest) == 0 || d.rest[0] != c {
		return false
	}
	d.rest = d.rest[1:]
	return true
}

// text reads a text.
func (d *plain) text() (string, bool) {
	if !d.next('"') {
		return "", false
	}
	end := strings.IndexByte(d.rest, '"')
	if end < 0 {
		return "", false
	}
	text := d.rest[:end]
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\\' {
			return "", false
		}
	}
	d.rest = d.rest[end+1:]
	return text, true
}
