package index_test

import (
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/chart/index"
)

// versions yields an entry of each field of text, "VERSION@MINUTES" with when
// it was created.
func versions(text string) iter.Seq2[index.Entry, error] {
	return func(yield func(index.Entry, error) bool) {
		for f := range strings.FieldsSeq(text) {
			v, at, told := strings.Cut(f, "@")
			e := index.Entry{Version: v}
			if told {
				d, err := time.ParseDuration(at + "m")
				if err != nil {
					panic(err)
				}
				e.Created = time.Unix(1e9, 0).Add(d)
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct{ want, versions, selected string }{
		{"1.0.0", "1.1.0 1.0.0 0.9.0", "1.0.0"},
		{"", "1.0.0 1.10.0 1.9.0", "1.10.0"},
		{"*", "2.0.0-rc.1 1.0.0 1.10.0", "1.10.0"},
		{"1.x", "0.9.0 1.0.0 1.2.0 2.0.0", "1.2.0"},
		{">=1.0.0 <2.0.0", "0.9.0 1.0.0 1.2.0 2.0.0", "1.2.0"},
		{"^1.0.0 || ^3.0.0", "1.0.0 2.0.0 3.1.0 4.0.0", "3.1.0"},

		// What is spelled like it comes first, wherever it is.
		{"1.0.0", "1.0.0+a@9 v1.0.0@9 1.0.0@1 1.0.0+b@9", "1.0.0"},
		{"v1.0.0", "1.0.0 v1.0.0", "v1.0.0"},
		{"1.0.0+b", "1.0.0+a@9 1.0.0+b@1", "1.0.0+b"},
		{"1.2", "1.2.9 1.2", "1.2"},
		{"1.0.0", "v1.0.0 0.9.0", "v1.0.0"},
		{"v1.0.0", "1.0.0 0.9.0", "1.0.0"},

		// Pre-releases are for who asks for them.
		{">=1.0.0", "1.0.0 1.1.0-rc.1", "1.0.0"},
		{">=1.0.0-0", "1.0.0 1.1.0-rc.2 1.1.0-rc.10", "1.1.0-rc.10"},
		{"1.1.0-rc.1", "1.0.0 1.1.0-rc.1", "1.1.0-rc.1"},

		// Build metadata: the last created.
		{"0.1.5", "0.1.5+a@-60 0.1.5+b@-1 0.1.5+c@0", "0.1.5+c"},
		{"0.1.5", "0.1.5+a@0 0.1.5+b@-1 0.1.5+c@-60", "0.1.5+a"},
		{"*", "0.1.5+a@0 0.1.4 0.1.5+b@9 0.1.5+c@-60", "0.1.5+b"},
		{"0.1.5", "0.1.5+b 0.1.5+c 0.1.5+a", "0.1.5+c"},
		{"0.1.5", "0.1.5+build.9 0.1.5+build.10 0.1.5+build", "0.1.5+build.10"},
		{"0.1.5", "0.1.5+1a 0.1.5+10 0.1.5+2", "0.1.5+1a"},
		{"0.1.5", "0.1.5 0.1.5+a", "0.1.5"},

		// What is no version is nobody's.
		{"*", "latest 1.0.0 1.0.0.0 ../../etc 00.9 main", "1.0.0"},
		{"*", "0.9 v1.2 1.1.0", "v1.2"},
	} {
		e, err := index.Select(versions(c.versions), c.want)
		if err != nil || e.Version != c.selected {
			t.Errorf("%q of %s: %q, %v; want %q", c.want, c.versions, e.Version, err, c.selected)
		}
		backwards := strings.Fields(c.versions)
		slices.Reverse(backwards)
		if e, err := index.Select(versions(strings.Join(backwards, " ")), c.want); err != nil || e.Version != c.selected {
			t.Errorf("%q of %s, backwards: %q, %v; want %q", c.want, c.versions, e.Version, err, c.selected)
		}
	}
}

func TestSelectSameVersionTwice(t *testing.T) {
	at := time.Unix(1e9, 0)
	list := []index.Entry{{Version: "1.0.0", Digest: "old", Created: at}, {Version: "1.0.0", Digest: "new", Created: at.Add(1)}, {Version: "1.0.0", Digest: "older", Created: at.Add(-1)}}
	for _, want := range []string{"1.0.0", "*"} {
		e, err := index.Select(func(yield func(index.Entry, error) bool) {
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
		}, want)
		if err != nil || e.Digest != "new" {
			t.Errorf("%s: %q, %v", want, e.Digest, err)
		}
	}
}

func TestSelectFails(t *testing.T) {
	for _, c := range []struct {
		want, versions, text string
		missing              bool
	}{
		{"2.x", "1.0.0 1.7.0 1.1.0 1.2.0 1.3.0 1.4.0 1.4.0", `no version is within "2.x": of 7 the newest are "1.7.0", "1.4.0", "1.3.0", "1.2.0", "1.1.0"`, true},
		{"", "1.0.0-rc.1 1.0.0-rc.2", `no version is within "*": of 2 the newest are "1.0.0-rc.2", "1.0.0-rc.1"; they are pre-releases`, true},
		{"2.x", "1.0.0-" + strings.Repeat("a", 200), strings.Repeat("a", 94) + `…"; they are`, true},
		{"*", "", "there is no chart of this name", true},
		{"*", "latest main", "there is no chart of this name", true},
		{"mäh", "1.0.0", `version "mäh" is neither in the index nor a range`, false},
		{">= \x1b[31m", "1.0.0", `version ">= \x1b[31m" is neither`, false},
	} {
		_, err := index.Select(versions(c.versions), c.want)
		if err == nil || !strings.Contains(err.Error(), c.text) || errors.Is(err, fs.ErrNotExist) != c.missing {
			t.Errorf("%q of %s: %v; want %s", c.want, c.versions, err, c.text)
		}
	}
	broken := errors.New("broken")
	if _, err := index.Select(func(yield func(index.Entry, error) bool) {
		_ = yield(index.Entry{Version: "1.0.0"}, nil) && yield(index.Entry{}, broken)
	}, "1.0.0"); !errors.Is(err, broken) {
		t.Errorf("error among entries: %v", err)
	}
}
