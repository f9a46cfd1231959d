package artifact

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// TestWithoutEscapes compares patterns with escapes, as read on other systems, with the rewritten
// patterns for the matcher on Windows: both decide alike.
func TestWithoutEscapes(t *testing.T) {
	tokens := []string{"a", "b", "*", "?", "/", `\*`, `\?`, `\#`, `\!`, `\a`, `\ `, `\]`, `\-`, `\^`, `\é`, " ", "!"}
	paths := strings.Fields("a b ab a/b a/ab * a* ?b #a !a ] a] - ^ é aé b/* b/a/b a/* #")
	paths = append(paths, "a ", " a", "b/a ")
	rewritten, differences := 0, 0
	r := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		var b strings.Builder
		for range 1 + r.IntN(5) {
			b.WriteString(tokens[r.IntN(len(tokens))])
		}
		text := b.String()
		if !strings.HasSuffix(text, `\ `) {
			text = strings.TrimRight(text, " ")
		}
		unescaped, err := withoutEscapes(text)
		if err != nil {
			if !strings.Contains(text, "**") && !strings.Contains(text, `\\`) && !strings.HasSuffix(strings.TrimRight(text, " "), `\`) {
				t.Fatalf("%q: %v", text, err)
			}
			continue
		}
		if strings.Contains(unescaped, `\`) {
			t.Fatalf("%q became %q, which has an escape", text, unescaped)
		}
		if unescaped != text {
			rewritten++
		}
		on, off := gitignore.ParsePattern(text, nil), gitignore.ParsePattern(unescaped, nil)
		for _, p := range paths {
			for _, dir := range []bool{true, false} {
				if on.Match(strings.Split(p, "/"), dir) != off.Match(strings.Split(p, "/"), dir) {
					differences++
					t.Errorf("%q and %q decide differently about %q", text, unescaped, p)
				}
			}
		}
		if differences > 10 {
			t.FailNow()
		}
	}
	if rewritten < 10_000 {
		t.Errorf("%d patterns had escapes", rewritten)
	}
}

// TestWithoutEscapesRefuses checks patterns that cannot be rewritten without a backslash.
func TestWithoutEscapesRefuses(t *testing.T) {
	for _, text := range []string{`a\`, `a\\b`, `\/a`, `[\a]`, `\***`} {
		if unescaped, err := withoutEscapes(text); err == nil {
			t.Errorf("%q became %q", text, unescaped)
		}
	}
}
