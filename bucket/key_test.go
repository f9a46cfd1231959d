package bucket_test

import (
	"io/fs"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

var (
	longPart = strings.Repeat("p", 255)
	longPath = strings.Repeat("d/", 2047) + "xy" // 4096 bytes
)

// TestKeyRules tests each rule for keys: the error names the refused key and the reason,
// and patterns that match the key exclude it.
func TestKeyRules(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct {
		says   string // of the refusal
		ignore string // a pattern that excludes it
	}{
		"a//b":                  {`"a//b" has an empty part`, "/a/"},
		"/a":                    {`"/a" has an empty part`, "a"},
		"//":                    {"", ""}, // a marker
		"a/../b":                {`"a/../b" has a part "." or ".."`, "a/*/b"},
		"../b":                  {`"../b" has a part "." or ".."`, "/../b"},
		"..":                    {`".." has a part "." or ".."`, ".."},
		"./b":                   {`"./b" has a part "." or ".."`, "/./"},
		"a/.":                   {`"a/." has a part "." or ".."`, "a/."},
		".":                     {`"." has a part "." or ".."`, ""},
		`a\b`:                   {`"a\\b" has a backslash`, `a\\b`},
		"a\nb":                  {`"a\nb" has a control character`, "a?b"},
		"a\x00b":                {`"a\x00b" has a control character`, "a*b"},
		"a\x7f":                 {`"a\x7f" has a control character`, "a?"},
		"a\u0085b":              {`"a\u0085b" has a control character`, "a?b"},
		"a\xffb":                {`"a\xffb" is not UTF-8 text`, "a?b"},
		"a\xc0\xafb":            {`"a\xc0\xafb" is not UTF-8 text`, "a*"},
		longPart:                {"", ""},
		longPart + "p":          {`p"… has a part of more than 255 bytes`, "ppp*"},
		"d/" + longPart + "p/x": {`has a part of more than 255 bytes`, "/d/"},
		longPath:                {"", ""},
		longPath + "z":          {`has more than 4096 bytes`, "/d/"},
		"é/ö":                   {"", ""},
		"con":                   {"", ""},
		"a:b|c?.":               {"", ""},
		" a ":                   {"", ""},
		"A":                     {"", ""},
		"x/":                    {"", ""},
		"x//":                   {"", ""},
		"../":                   {"", ""},
		"a\\/":                  {"", ""},
	} {
		d := newMemory(key, "1", "a", "2")
		_, err := resolve(t, d, nil)
		switch {
		case c.says == "":
			if err != nil {
				t.Errorf("%q: %v", key, err)
			}
			continue
		case err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), ": rename them, or exclude them with spec.ignore"):
			t.Errorf("%q: %v, want %s", key, err, c.says)
		}
		if c.ignore == "" {
			continue
		}
		if _, err := resolve(t, d, ignoring(c.ignore+"\n!/zz\n")); err != nil {
			t.Errorf("%q with the pattern %s: %v", key, c.ignore, err)
		}
		d.put(".sourceignore", c.ignore)
		if _, err := resolve(t, d, nil); err != nil {
			t.Errorf("%q with the pattern %s in .sourceignore: %v", key, c.ignore, err)
		}
	}
}

// TestKeysTogether tests keys that are valid but may conflict with each other.
func TestKeysTogether(t *testing.T) {
	for name, c := range map[string]struct {
		keys   []string
		twice  string // a key that is listed twice
		ignore string
		says   string
		files  string // of the artifact, if no key is refused
	}{
		"file and directory":           {keys: []string{"a", "a/b"}, says: `"a" is a directory of "a/b"`},
		"with others between":          {keys: []string{"a", "a!", "a-b", "a.", "a/b", "a0"}, says: `"a" is a directory of "a/b"`},
		"deep":                         {keys: []string{"a/b/c", "a/b/c/d/e", "a/b/c.d"}, says: `"a/b/c" is a directory of "a/b/c/d/e"`},
		"once for all":                 {keys: []string{"a", "a/b", "a/c", "a/d/e"}, says: `artifact: "a" is a directory of "a/b": rename`},
		"chain":                        {keys: []string{"a", "a/b", "a/b/c"}, says: `"a" is a directory of "a/b", "a/b" is a directory of "a/b/c"`},
		"file ignored":                 {keys: []string{"a", "a-b", "a/b", "a/c"}, ignore: "/a\n!/a/*", files: "a/b a/c a-b"},
		"directory ignored":            {keys: []string{"a", "a-b", "a/b", "a/c"}, ignore: "/a/", files: "a a-b"},
		"both ignored":                 {keys: []string{"a", "a/b", "c"}, ignore: "/a", files: "c"},
		"marker":                       {keys: []string{"a/", "a/b", "c", "c/"}, files: "a/b c"},
		"twice":                        {keys: []string{"a", "b", "c"}, twice: "b", says: `"b" is listed twice`},
		"twice, ignored":               {keys: []string{"a", "b", "b2", "c"}, twice: "b", ignore: "b", files: "a c"},
		"rules twice":                  {keys: []string{"!", "b", "c"}, twice: ".sourceignore", says: `".sourceignore" is listed twice`},
		"below the rules":              {keys: []string{".sourceignore", ".sourceignore/a", "b"}, says: `".sourceignore" is a directory of ".sourceignore/a"`},
		"below the rules, ignored":     {keys: []string{".sourceignore", ".sourceignore/a", "b"}, ignore: "a", files: ".sourceignore b"},
		"directory without rules":      {keys: []string{".sourceignore/a", "b"}, files: ".sourceignore/a b"},
		"rules that ignore themselves": {keys: []string{".sourceignore", "b"}, ignore: ".*", files: ".sourceignore b"},
		"many":                         {keys: []string{"a//1", "a//2", "a//3", "a//4", "a//5", "a//6", "a//7"}, says: `"a//5" has an empty part and 2 more: rename`},
		"case":                         {keys: []string{"a", "A", "e\u0301", "é"}, files: "A a e\u0301 é"},
	} {
		d := newMemory()
		for _, key := range c.keys {
			d.put(key, "")
		}
		if c.twice != "" {
			d.order = func(l []bucket.Object) { l[1].Key, l[2].Key = c.twice, c.twice }
		}
		if c.says != "" {
			_, err := resolve(t, d, ignoring(c.ignore))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %s", name, err, c.says)
			}
			continue
		}
		if _, files := d.fetch(t, ignoring(c.ignore)); files != c.files {
			t.Errorf("%s: %s, want %s", name, files, c.files)
		}
	}
}

// FuzzKeys checks that accepted keys form a tree of paths, in whatever order they are
// listed, and that no object is lost.
func FuzzKeys(f *testing.F) {
	f.Add("a\x01a/b\x01a-b", "", false)
	f.Add("a//b\x01../c\x01d\\e\x01.sourceignore", "d*", true)
	f.Add("é\x01\xff\x01x/", "/x\n!x/", true)
	f.Fuzz(func(t *testing.T, text, ignore string, backwards bool) {
		d, want := newMemory(), map[string]bool{}
		for _, key := range strings.Split(text, "\x01") {
			d.put(key, "")
			want[key] = !strings.HasSuffix(key, "/")
		}
		if backwards {
			d.order = func(l []bucket.Object) {
				for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
					l[i], l[j] = l[j], l[i]
				}
			}
		}
		o := d.origin(newBucket(ignoring(ignore)), source.Env{})
		rev, _, err := o.Resolve(t.Context(), nil)
		if err != nil {
			if msg := err.Error(); len(msg) > 4096 || !utf8.ValidString(msg) || strings.ContainsFunc(msg, unicode.IsControl) {
				t.Errorf("error %q", msg)
			}
			return
		}
		_, files := written(t, o, rev)
		for _, name := range files {
			if !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") || !want[name] {
				t.Errorf("file %q", name)
			}
			delete(want, name)
		}
		for key, file := range want {
			if file && ignore == "" {
				t.Errorf("%q is lost: %q", key, files)
			}
		}
	})
}
