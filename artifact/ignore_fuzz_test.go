package artifact_test

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
)

// FuzzMatch compares the compiled rules with a matcher that tries one pattern
// after the other, by backtracking.
func FuzzMatch(f *testing.F) {
	for _, text := range []string{
		"*.txt\n!keep.txt\n", "/*\n!/deploy\n", "dir/\n!dir/keep", "a/**/b", "**/a*b", "foo**/bar", "**\\/b", "a\\ \\  ",
		"[[:alpha:]-z]", "[]a-]", "[!]x]", "[z-a]", "[[:a]", "[\\", "\ufeff#", "\\#a\r\n\\!b\r\n", "*/*/\n!**/b\n", "***", "a**/**/b",
	} {
		f.Add(text, "dir/keep.txt", false)
		f.Add(text, "a/x/ab", true)
		f.Add(text, "foo/bar/b", false)
	}
	f.Fuzz(func(t *testing.T, text, name string, dir bool) {
		if len(text) > 200 || len(name) > 40 || !fs.ValidPath(name) || strings.IndexByte(text, 0) >= 0 {
			t.Skip()
		}
		rules := compile(t, artifact.Ignore{Extra: text}, nil)
		rule, ignored := rules.Match(name, dir)
		wantLine, want := slowMatch(text, name, dir)
		if rule.Line != wantLine || ignored != want {
			t.Errorf("%q %q: got line %d, ignored %v; want line %d, ignored %v", text, name, rule.Line, ignored, wantLine, want)
		}
	})
}

// slowMatch is Match of the patterns in text.
func slowMatch(text, name string, dir bool) (line int, ignored bool) {
	if name == "." {
		return 0, false
	}
	if parent := path.Dir(name); parent != "." {
		if line, ignored = slowMatch(text, parent, true); !ignored {
			line = 0
		}
	}
	for i, p := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		if i < strings.Count(text, "\n") {
			p = strings.TrimSuffix(p, "\r")
		}
		negate, ok := slowPattern(p, name, dir)
		if ok && i+1 > line {
			line, ignored = i+1, !negate
		}
	}
	return line, ignored
}

// slowPattern reports whether one line matches the path itself.
func slowPattern(p, name string, dir bool) (negate, ok bool) {
	if strings.HasPrefix(p, "#") {
		return false, false
	}
	for strings.HasSuffix(p, " ") {
		slashes := len(p[:len(p)-1]) - len(strings.TrimRight(p[:len(p)-1], `\`))
		if slashes%2 == 1 {
			break
		}
		p = p[:len(p)-1]
	}
	p, negate = strings.CutPrefix(p, "!")
	p, onlyDir := strings.CutSuffix(p, "/")
	if p == "" || onlyDir && !dir {
		return negate, false
	}
	if !strings.Contains(p, "/") {
		return negate, slowGlob(p, path.Base(name), true, false)
	}
	p = strings.TrimPrefix(p, "/")
	literal := strings.IndexAny(p, `*?[\`) // git compares the literal beginning by itself
	if literal < 0 {
		return negate, p == name
	}
	return negate, strings.HasPrefix(name, p[:literal]) && slowGlob(p[literal:], name[literal:], true, true)
}

// slowGlob reports whether p matches all of s. start says that p is at the
// start of a path element, deep that ** is special there.
func slowGlob(p, s string, start, deep bool) bool {
	if p == "" {
		return s == ""
	}
	switch p[0] {
	case '*':
		rest := strings.TrimLeft(p, "*")
		across := deep && start && len(p)-len(rest) > 1 && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
		if across && strings.HasPrefix(rest, "/") && slowGlob(rest[1:], s, true, deep) {
			return true
		}
		for i := 0; ; i++ {
			if slowGlob(rest, s[i:], false, deep) {
				return true
			}
			if i == len(s) || s[i] == '/' && !across {
				return false
			}
		}
	case '[':
		if s == "" || s[0] == '/' {
			return false
		}
		in, n := slowBracket(p, s[0])
		return in && slowGlob(p[n:], s[1:], false, deep)
	case '?':
		return s != "" && s[0] != '/' && slowGlob(p[1:], s[1:], false, deep)
	case '\\':
		if p = p[1:]; p == "" {
			return false
		}
	}
	return s != "" && s[0] == p[0] && slowGlob(p[1:], s[1:], p[0] == '/', deep)
}

// slowBracket reports whether the bracket expression at the start of p holds c,
// and its length.
func slowBracket(p string, c byte) (in bool, n int) {
	p += "\x00\x00\x00"
	i := 1
	negate := p[i] == '!' || p[i] == '^'
	if negate {
		i++
	}
	from := byte(0)
	for first := true; first || p[i] != ']'; first = false {
		switch {
		case p[i] == 0:
			return false, 0
		case p[i] == '\\':
			if i++; p[i] == 0 {
				return false, 0
			}
			in = in || c == p[i]
			from = p[i]
		case p[i] == '-' && from != 0 && p[i+1] != 0 && p[i+1] != ']':
			if i++; p[i] == '\\' {
				i++
			}
			if p[i] == 0 {
				return false, 0
			}
			in = in || from <= c && c <= p[i]
			from = 0
		case strings.HasPrefix(p[i:], "[:") && !strings.Contains(p[i+2:], "]"):
			return false, 0
		case strings.HasPrefix(p[i:], "[:") && p[i+2+strings.Index(p[i+2:], "]")-1] == ':' && p[i+2] != ']':
			end := i + 2 + strings.Index(p[i+2:], "]")
			set, ok := slowClasses[p[i+2:end-1]]
			if !ok {
				return false, 0
			}
			in = in || set(c)
			i, from = end, 0
		default:
			in = in || c == p[i]
			from = p[i]
		}
		i++
	}
	return in != negate, i + 1
}

func between(spans string) func(byte) bool {
	return func(c byte) bool {
		for i := 0; i < len(spans); i += 2 {
			if spans[i] <= c && c <= spans[i+1] {
				return true
			}
		}
		return false
	}
}

var slowClasses = map[string]func(byte) bool{
	"alnum": between("azAZ09"), "alpha": between("azAZ"), "digit": between("09"), "lower": between("az"), "upper": between("AZ"),
	"xdigit": between("09afAF"), "blank": between("  \t\t"), "space": between("  \t\t\n\n\r\r"), "cntrl": between("\x00\x1f\x7f\x7f"),
	"graph": between("!~"), "print": between(" ~"), "punct": between("!/:@[`{~"),
}

// FuzzView checks that walking a view and asking Match about every path of the
// tree come to the same.
func FuzzView(f *testing.F) {
	f.Add("/*\n!/deploy\n", "*.md\n!keep/*", "deploy/a.md deploy/keep/b.md x/y")
	f.Add("dir/\n!dir/*/keep", "", "dir/a/keep dir/a/b dir/c sub/dir/a/keep")
	f.Add("**\n!b/**", "!x", "a/x sub/x b/c/d")
	f.Add("*\n!*/\n!*.go", "/c/", "a.go b/c.go b/c/d.go sub/c/d")
	f.Fuzz(func(t *testing.T, top, nested, names string) {
		if len(top)+len(nested)+len(names) > 500 || strings.IndexByte(top+nested, 0) >= 0 {
			t.Skip()
		}
		all := tree()
		for _, name := range append(strings.Fields(names), "sub/x/y", "sub/z") {
			all[name] = &fstest.MapFile{}
		}
		for name := range all {
			if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) { // the last is too much for TestFS
				t.Skip()
			}
			for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
				if all[dir] != nil {
					t.Skip() // a file is no parent
				}
			}
		}
		all["sub/.ignore"] = &fstest.MapFile{Data: []byte(nested)}
		rules := compile(t, artifact.Ignore{File: ".ignore", Extra: top}, all)
		var want []string
		err := fs.WalkDir(all, ".", func(name string, d fs.DirEntry, err error) error {
			if _, ignored := rules.Match(name, d.IsDir()); !ignored && name != "." {
				if d.IsDir() {
					name += "/"
				}
				want = append(want, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		view := rules.View(all)
		if got := kept(t, view); !slices.Equal(got, want) {
			t.Errorf("%q, sub: %q: got %q, want %q", top, nested, got, want)
		}
		shown, err := fs.Glob(view, "*")
		if err != nil {
			t.Fatal(err)
		}
		if err := fstest.TestFS(view, shown...); err != nil {
			t.Error(err)
		}
	})
}
