package artifact

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A storePath is where an artifact lies in a store.
type storePath struct{ dir, hex, file string }

func (p storePath) path() string   { return p.dir + "/" + p.hex + "/" + p.file }
func (p storePath) folder() string { return p.dir + "/" + p.hex }
func (p storePath) record() string { return p.dir + "/" + p.hex + "/." + p.file }

// parsePath parses a path in a store, and reports whether it is one.
func parsePath(name string) (storePath, bool) {
	folder, file := path.Split(name)
	dir, sum := path.Split(strings.TrimSuffix(folder, "/"))
	p := storePath{dir: strings.TrimSuffix(dir, "/"), hex: sum, file: file}
	ok := isHex(sum) && checkDir(p.dir) == nil && checkName(file) == nil && p.path() == name
	return p, ok
}

// locate reports where a must lie, and its digest with the algorithm spelt
// out: the path carries the digest that a claims.
func locate(a Artifact) (p storePath, digest string, err error) {
	p, ok := parsePath(a.Path)
	algorithm, sum, err := ParseDigest(a.Digest)
	if !ok || err != nil || sum != p.hex {
		return storePath{}, "", fmt.Errorf("digest %q at that path: %w in this store", a.Digest, fs.ErrNotExist)
	}
	return p, string(algorithm) + ":" + sum, nil
}

// isHex reports whether s is a digest in lower-case hexadecimal.
func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) >= 32 && len(s) <= 128 && s == strings.ToLower(s)
}

// checkDir reports why dir is not an object's directory KIND/NAMESPACE/NAME.
func checkDir(dir string) error {
	parts := strings.Split(dir, "/")
	if len(parts) != 3 {
		return fmt.Errorf("%w directory %q: want KIND/NAMESPACE/NAME", fs.ErrInvalid, dir)
	}
	for _, part := range parts {
		if err := checkName(part); err != nil {
			return err
		}
	}
	return nil
}

// maxName is the longest name of a file, in bytes. With the dot of its record
// it is the longest that common file systems take.
const maxName = 254

// reservedNames are devices on Windows, whatever their extension.
var reservedNames = func() map[string]bool {
	m := map[string]bool{"con": true, "prn": true, "aux": true, "nul": true, "conin$": true, "conout$": true}
	for _, n := range "0123456789¹²³" {
		m["com"+string(n)], m["lpt"+string(n)] = true, true
	}
	return m
}()

// checkName reports why name cannot be one component of a path. It is the
// same on every system, so that a store can move between them.
func checkName(name string) error {
	bad := func(why string) error { return fmt.Errorf("%w name %q: %s", fs.ErrInvalid, name, why) }
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch {
	case name == "":
		return bad("it is empty")
	case len(name) > maxName:
		return bad(fmt.Sprintf("it is longer than %d bytes", maxName))
	case !utf8.ValidString(name):
		return bad("it is not UTF-8")
	case name[0] == '.':
		return bad("it begins with a dot")
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return bad("it ends with a dot or a space")
	case strings.ContainsAny(name, `/\:*?"<>|`):
		return bad(`it contains one of / \ : * ? " < > |`)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return bad("it contains a character that cannot be printed")
	case reservedNames[strings.TrimRight(stem, " ")]:
		return bad("it is the name of a device on Windows")
	}
	return nil
}
