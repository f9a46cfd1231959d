package chart

import (
	"strings"
	"testing"
)

func TestNormalise(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"http://h":                        "http://h/",
		"http://h/":                       "http://h/",
		"https://h/charts///":             "https://h/charts/",
		"https://h//a//b":                 "https://h/a/b/",
		"http://h?x=1":                    "http://h/?x=1",
		"http://h/charts?x=1&y=%2F":       "http://h/charts/?x=1&y=%2F",
		"http://h/a%2Fb/c%20d":            "http://h/a%2Fb/c%20d/",
		"http://h/a%2F%2Fb":               "http://h/a%2F%2Fb/",
		"HTTPS://Example.ORG:8443/Charts": "https://example.org:8443/Charts/",
		"https://u:p@h/charts":            "https://u:p@h/charts/",
		"https://h/charts#part":           "https://h/charts/",
		"oci://h/charts/":                 "oci://h/charts",
		"oci://h//charts//":               "oci://h/charts",
		"oci://h/":                        "oci://h",
	} {
		got, err := normalise(text)
		if err != nil || got != want {
			t.Errorf("normalise(%q) = %q, %v; want %q", text, got, err, want)
		}
		if again, err := normalise(got); err != nil || again != got {
			t.Errorf("normalise(%q) = %q, %v", got, again, err)
		}
	}
}

func TestNormaliseRefuses(t *testing.T) {
	for _, text := range []string{"http://h/%zz", "http://u:cAnArY@h\x00/", "charts", "http:///charts", "http://[::1/", "https:h/cAnArY"} {
		_, err := normalise(text)
		if err == nil || strings.Contains(err.Error(), "cAnArY") {
			t.Errorf("normalise(%q): %v", text, err)
		}
	}
}

func TestBelowKeepsTheQuery(t *testing.T) {
	base, err := parseURL("http://h/a%2Fb?x=1")
	if err != nil {
		t.Fatal(err)
	}
	if got := below(base, "index.yaml").String(); got != "http://h/a%2Fb/index.yaml?x=1" {
		t.Error(got)
	}
	if got := below(base, "a b.tgz").String(); got != "http://h/a%2Fb/a%20b.tgz?x=1" {
		t.Error(got)
	}
}

func FuzzNormalise(f *testing.F) {
	for _, text := range []string{"http://h?x=1", "https://u:p@H//a%2F/b/", "oci://h//x/", "http://[::1]:80/..//", "http://h/%2f%2F//?a#b", "x:y"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, err := normalise(text)
		if err != nil || once == "" {
			return
		}
		twice, err := normalise(once)
		if err != nil || twice != once {
			t.Fatalf("%q is %q, and that %q (%v)", text, once, twice, err)
		}
		u, err := parseURL(once)
		if err != nil || u.Scheme != "oci" && !strings.HasSuffix(u.EscapedPath(), "/") || strings.Contains(u.EscapedPath(), "//") {
			t.Fatalf("%q is %q", text, once)
		}
	})
}
