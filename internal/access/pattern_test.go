package access

import (
	"regexp"
	"strings"
	"testing"
)

func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"shop", "shop"}, {"shop", "shops"}, {"team-*", "team-a"}, {"*", ""}, {"a*b*c", "abc"}, {"a*b*c", "axxbyyc"}, {"a*b*c", "acb"},
		{"*ab", "aab"}, {"a*a", "a"}, {"**", "x"}, {"a*ab*b", "aabb"}, {"a.c", "abc"}, {"*aa*aa*", "aaa"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, p, text string) {
		if len(p) > 100 || len(text) > 1000 || strings.Count(p, "*") > 8 {
			return
		}
		want, err := regexp.Compile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `.*`) + `\z`)
		if err != nil || strings.ToValidUTF8(p+text, "") != p+text {
			return
		}
		if got := Pattern(p).Match(text); got != want.MatchString(text) {
			t.Errorf("%q matches %q: %t", p, text, got)
		}
	})
}

// shops are the scope of a server of these tests.
type shops struct {
	Namespaces *[]Pattern `json:"namespaces,omitempty"`
}

func (s *shops) lists() []Scope {
	return []Scope{{Field: "namespaces", List: s.Namespaces, Check: CheckNamespace}}
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"tokens: [{name: a, token: 0123456789abcdef}]", "tokens:\n- name: a\n  namespaces:\n", `{"certificates": [{"name": "a", "dns": "b"}]}`, "tokens: null", "tokens: [null]", "tokens: [[]]",
		"tokens: [{name: a}]\ntokens: [{name: b}]", "- a", "a: &a [*a]", "tokens: &t [{name: a, token: 0123456789abcdef}]\ncertificates: *t", "tokens: {a: 1}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, _, err := readRoster((*shops).lists, []string{"none"}, [][]byte{[]byte(text)})
		if err != nil {
			return
		}
		for i := range r.Tokens {
			if one := &r.Tokens[i]; one.Token != "" || one.digest == (digest{}) || one.Name == "" {
				t.Errorf("token %+v of %q", one, text)
			}
		}
		if len(r.Tokens)+len(r.Certificates) == 0 {
			t.Errorf("nobody in %q", text)
		}
	})
}
