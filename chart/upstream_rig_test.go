package chart

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// objects is a list of what there is in the namespace.
type objects []source.Object

func (o objects) Source(context.Context, source.Reference) (source.Object, error) {
	return nil, fs.ErrNotExist
}
func (o objects) List(context.Context, string, string) ([]source.Object, error) { return o, nil }

// Open has nothing to open.
func (o objects) Open(context.Context, artifact.Artifact) (io.ReadCloser, error) {
	return nil, fs.ErrNotExist
}

// password must not show anywhere.
const password = "cAnArY/+p4ss"

// A bench has a supply and a repository that is used through it.
type bench struct {
	*testing.T
	s    *opener
	repo *source.PkgRepository
	text []byte // of the index
}

// newBench returns a bench for the repository at url, whose index is that of c.
func newBench(t *testing.T, url string, c *testenv.Charts) *bench {
	b := &bench{T: t, repo: &source.PkgRepository{}}
	b.repo.Metadata.Namespace, b.repo.Metadata.Name = "default", "charts"
	b.repo.Spec.URL, b.repo.Spec.Timeout = url, source.Duration(time.Minute)
	if c != nil {
		b.text = c.Index()
	}
	env := source.Env{Secrets: sourcetest.Secrets{
		"default/user": {Data: map[string][]byte{"username": []byte("ann"), "password": []byte(password)}},
	}}
	b.s = &opener{env: env, vault: &transport.Vault{Namespace: "default", From: env.Secrets}}
	b.s.technologies = map[string]oci.Technology{}
	return b
}

// open opens the repository.
func (b *bench) open() upstream {
	b.Helper()
	var index func(context.Context) (io.ReadCloser, error)
	if b.text != nil {
		index = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.text)), nil }
	}
	u, err := b.s.open(b.Context(), b.repo, index)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(u.close)
	return u
}

// get finds and fetches a chart and returns its bytes.
func (b *bench) get(name, want string) (*selected, []byte, error) {
	b.Helper()
	u := b.open()
	o, err := u.find(b.Context(), name, want)
	if err != nil {
		return o, nil, err
	}
	a, err := u.fetch(b.Context(), o)
	if err != nil {
		return o, nil, err
	}
	return o, b.drain(a), nil
}

// drain returns the bytes of a and closes it.
func (b *bench) drain(a *bundle.Chart) []byte {
	b.Helper()
	var text bytes.Buffer
	if _, err := a.WriteTo(&text); err != nil {
		b.Error(err)
	}
	if err := a.Close(); err != nil {
		b.Error(err)
	}
	return text.Bytes()
}

// fails checks an error: its step, its reason, whether it stalls, what it says,
// and that it shows no credentials.
func (b *bench) fails(err error, step source.Step, reason string, stalls bool, says ...string) {
	b.Helper()
	e, ok := errors.AsType[*source.StepError](err)
	if !ok || e.Step != step || e.Reason != reason || errors.Is(err, source.ErrInvalid) != stalls {
		b.Errorf("%v\n%+v, want %s %s, stalled %v", err, e, step, reason, stalls)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			b.Errorf("%v\nwant %q", err, s)
		}
	}
	if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "cAnArY") || strings.Contains(err.Error(), "\n") {
		b.Errorf("%q shows what it must not", err)
	}
}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }
