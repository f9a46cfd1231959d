package git_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// An artifact may be hostile: what it holds stays where it is mounted.
func TestIncludeHostileArtifact(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	env := source.Env{Local: map[string]string{atURL: repo.Dir}}
	for _, name := range []string{"../up", "a/../../up", "/etc/passwd", `a\b`, "..", "a/.."} {
		p := newIncludedSources(t)
		p.put(new(source.ExternalArtifact), "evil", tgz(map[string]string{name: "evil", "good": "good"}))
		env.Sources = p
		_, data, _, err := try(t.Context(), including(atURL, "ExternalArtifact/evil"), env)
		var step *source.StepError
		if err == nil {
			for name := range contents(t, data) {
				if strings.Contains(name, "up") || strings.Contains(name, "passwd") {
					t.Errorf("%q came out as %q", name, name)
				}
			}
		} else if !errors.As(err, &step) || step.Reason != "CopyFailure" {
			t.Errorf("%q: %v", name, err)
		}
	}
	p := newIncludedSources(t)
	p.put(new(source.ExternalArtifact), "evil", tgz(map[string]string{
		"link": "-> /etc", "link/passwd": "mine", ".git/config": "[core]", "sub/.git/hooks/x": "x", "good": "good",
	}))
	env.Sources = p
	_, data, _ := fetch(t, including(atURL, "ExternalArtifact/evil:.:."), env)
	if got := slices.Sorted(maps.Keys(contents(t, data))); !slices.Equal(got, []string{"app.yaml", "base/a.yaml", "base/deep/x.yaml", "good", "link/passwd"}) {
		t.Errorf("content %q", got)
	}
}

// An artifact that is included several times is opened once, and yet counts
// each time towards the limits.
func TestIncludeTwice(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	p := newIncludedSources(t)
	p.tree("big", files("x", strings.Repeat("x", 100_000), "y/z", ""))
	env := p.env()
	env.Local = map[string]string{atURL: repo.Dir}
	twice := including(atURL, "big::a", "big:y:b", "big::c")
	_, data, _ := fetch(t, twice, env)
	if got := contents(t, data); p.opened.Load() != 1 || len(got["a/x"]) != 100_000 || len(got["c/x"]) != 100_000 {
		t.Errorf("opened %d times, content %d files", p.opened.Load(), len(got))
	}
	for _, row := range []struct {
		limits artifact.Limits
		want   string
	}{
		{artifact.Limits{Bytes: 150_000}, "all includes together hold more than 150000 bytes"},
		{artifact.Limits{Entries: 9}, "all includes together hold more than 9 entries"},
		{artifact.Limits{FileBytes: 50_000}, "50000 bytes"},
		{artifact.Limits{Bytes: 50_000}, "50000 bytes"},
	} {
		env.Limits = row.limits
		if _, _, _, err := try(t.Context(), twice, env); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v", row.limits, err)
		}
	}
	env.Limits = artifact.Limits{Bytes: -1, Entries: -1, FileBytes: -1, Ratio: -1}
	if _, _, _, err := try(t.Context(), twice, env); err != nil {
		t.Errorf("no limits: %v", err)
	}
}

// All that is read of included archives counts towards the limits, not only the
// part of it that is mounted.
func TestIncludeParts(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	p := newIncludedSources(t)
	for _, name := range []string{"big", "bigger"} {
		p.tree(name, files("x", strings.Repeat(name, 30_000), "y/z", ""))
	}
	env := p.env()
	env.Local = map[string]string{atURL: repo.Dir}
	parts := including(atURL, "big:y:a", "bigger:y:b")
	for _, row := range []struct {
		limits artifact.Limits
		want   string
	}{
		{artifact.Limits{Bytes: 200_000}, "all includes together hold more than 200000 bytes"},
		{artifact.Limits{Entries: 7}, "all includes together hold more than 7 entries"},
	} {
		env.Limits = row.limits
		if _, _, _, err := try(t.Context(), parts, env); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v", row.limits, err)
		}
	}
	env.Limits = artifact.Limits{Bytes: 400_000, Entries: 20}
	if _, _, _, err := try(t.Context(), parts, env); err != nil {
		t.Errorf("within the limits: %v", err)
	}
}

// The artifact of an ExternalArtifact is fetched from its URL.
func TestIncludeExternal(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	theirs := newIncludedSources(t)
	theirs.put(new(source.ExternalArtifact), "ext", pack(files("ext.yaml", "e")))
	server := httptest.NewServer(theirs.store.Handler())
	defer server.Close()
	ext := theirs.objects[0].(*source.ExternalArtifact)
	ext.Status.Artifact.URL = server.URL + "/" + ext.Status.Artifact.Path
	p := newIncludedSources(t)
	p.objects = theirs.objects
	env := p.env()
	env.Local = map[string]string{atURL: repo.Dir}
	g := including(atURL, "ExternalArtifact/ext::base")
	_, data, _ := fetch(t, g, env)
	if got := contents(t, data)["base/ext.yaml"]; got != "e" {
		t.Errorf("content %q", got)
	}
	ext.Status.Artifact.Digest = "sha256:" + strings.Repeat("0", 64)
	var wrong *artifact.DigestError
	if _, _, _, err := try(t.Context(), g, env); !errors.As(err, &wrong) {
		t.Errorf("another digest: %v", err)
	}
}

// A revision that was resolved for another list of includes is refused, and a
// context that ends stops the reading of an artifact.
func TestIncludeOpen(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	p := filled(t)
	env := p.env()
	env.Local = map[string]string{atURL: repo.Dir}
	g := including(atURL, "lib")
	rev, _, err := git.New(g, env).Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, g *source.GitRepository) error {
		c, err := git.New(g, env).Open(ctx, rev)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.WriteTo(ctx, io.Discard)
		return err
	}
	if err := write(t.Context(), including(atURL, "lib", "other")); err == nil || !strings.Contains(err.Error(), "1 inputs, spec.include names 2") {
		t.Errorf("another list: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	env.Sources = &slow{p, func() { cancel(ended) }}
	if err := write(ctx, g); !errors.Is(err, ended) {
		t.Errorf("ended while an artifact was read: %v", err)
	}
}

// slow is a includedSources that does something before an artifact is read.
type slow struct {
	*includedSources
	before func()
}

func (s *slow) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	r, err := s.includedSources.Open(ctx, a)
	s.before()
	return r, err
}
