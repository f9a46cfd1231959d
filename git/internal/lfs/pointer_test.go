package lfs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/lfs"
)

const (
	v1    = "version https://git-lfs.github.com/spec/v1\n"
	some  = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of hello
	empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var pointers = []struct {
	name, text string
	err        error
}{
	{"as written", v1 + "oid sha256:" + some + "\nsize 5\n", nil},
	{"before the first release", "version https://hawser.github.com/spec/v1\noid sha256:" + some + "\nsize 5\n", nil},
	{"no last line break", v1 + "oid sha256:" + some + "\nsize 5", nil},
	{"CR LF", strings.ReplaceAll(v1+"oid sha256:"+some+"\nsize 5\n", "\n", "\r\n"), nil},
	{"blank lines around", "\n" + v1 + "oid sha256:" + some + "\nsize 5\n\n", nil},
	{"nothing", "", lfs.ErrNotPointer},
	{"text", "hello\n", lfs.ErrNotPointer},
	{"another version", "version https://git-lfs.github.com/spec/v2\noid sha256:" + some + "\nsize 5\n", lfs.ErrNotPointer},
	{"first line alone", v1, lfs.ErrNotPointer},
	{"no size", v1 + "oid sha256:" + some + "\n", lfs.ErrNotPointer},
	{"wrong order", v1 + "size 5\noid sha256:" + some + "\n", lfs.ErrNotPointer},
	{"unknown key", v1 + "oid sha256:" + some + "\nsize 5\nzzz 1\n", lfs.ErrNotPointer},
	{"two oids", v1 + "oid sha256:" + some + "\noid sha256:" + some + "\n", lfs.ErrNotPointer},
	{"other hash", v1 + "oid sha512:" + some + "\nsize 5\n", lfs.ErrNotPointer},
	{"short oid", v1 + "oid sha256:" + some[1:] + "\nsize 5\n", lfs.ErrNotPointer},
	{"oid in upper case", v1 + "oid sha256:" + strings.ToUpper(some) + "\nsize 5\n", lfs.ErrNotPointer},
	{"oid that is a path", v1 + "oid sha256:../../../../../../../../../../../../../../../../../../../../etc/passwd\nsize 5\n", lfs.ErrNotPointer},
	{"negative size", v1 + "oid sha256:" + some + "\nsize -5\n", lfs.ErrNotPointer},
	{"huge size", v1 + "oid sha256:" + some + "\nsize 9223372036854775808\n", lfs.ErrNotPointer},
	{"size of nothing", v1 + "oid sha256:" + some + "\nsize 0\n", lfs.ErrNotPointer},
	{"nothing of a size", v1 + "oid sha256:" + empty + "\nsize 5\n", lfs.ErrNotPointer},
	{"the empty object", v1 + "oid sha256:" + empty + "\nsize 0\n", nil},
	{"too long", v1 + "oid sha256:" + some + "\nsize 5\n" + strings.Repeat("\n", 1024), lfs.ErrNotPointer},
	{"extension", v1 + "ext-0-foo sha256:" + some + "\noid sha256:" + some + "\nsize 5\n", lfs.ErrExtension},
}

func TestPointers(t *testing.T) {
	for _, row := range pointers {
		p, err := lfs.ParsePointer([]byte(row.text))
		if !errors.Is(err, row.err) {
			t.Errorf("%s: %v, want %v", row.name, err, row.err)
		}
		if err == nil && !strings.Contains(row.text, p.OID) {
			t.Errorf("%s: %+v", row.name, p)
		}
	}
}
