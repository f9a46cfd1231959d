package oci_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

func serve(phase testenv.Phase, h http.HandlerFunc) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) { h(w, r) }}
}

// without removes headers of the right answer.
func without(phase testenv.Phase, names ...string) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&trimmed{w, names}, r)
	}}
}

type trimmed struct {
	http.ResponseWriter
	names []string
}

func (w *trimmed) WriteHeader(code int) {
	for _, name := range w.names {
		w.Header()[name] = nil
	}
	w.ResponseWriter.WriteHeader(code)
}

// What is too large is not read, whether its length is told or not.
func TestHugeAnswers(t *testing.T) {
	subject := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 1}
	told := func(phase testenv.Phase) *testenv.Defect {
		return serve(phase, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(1<<30))
			w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			w.WriteHeader(http.StatusOK)
			chunk := []byte(strings.Repeat("[", 64<<10))
			for range 1 << 14 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
	}
	for name, row := range map[string]struct {
		defect *testenv.Defect
		do     func(r *oci.Repository) error
	}{
		"manifest":       {&testenv.Defect{Phase: testenv.GetManifest, Do: testenv.Swell, After: 1 << 30}, manifestOf1},
		"told manifest":  {told(testenv.GetManifest), manifestOf1},
		"tags":           {&testenv.Defect{Phase: testenv.ListTags, Do: testenv.Swell, After: 1 << 30}, tagsOf},
		"told tags":      {told(testenv.ListTags), tagsOf},
		"referrers":      {told(testenv.ListReferrers), func(r *oci.Repository) error { return last(r.Referrers(context.Background(), subject, "")) }},
		"refusal":        {refusing(1 << 30), manifestOf1},
		"endless header": {serve("", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }), manifestOf1},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			g.Break(row.defect)
			r := plain(t, g)
			var err error
			used := measure.Allocated(func() { err = row.do(r) })
			if err == nil || len(err.Error()) > 1000 {
				t.Error(err)
			}
			if used > 128<<20 {
				t.Errorf("%d MiB were allocated", used>>20)
			}
		})
	}
}

func refusing(n int) *testenv.Defect {
	return serve("", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"errors":[{"code":"DENIED","message":"`)
		chunk := strings.Repeat("\x1b[31mA", 8<<10)
		for i := 0; i < n; i += len(chunk) {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
}

func manifestOf1(r *oci.Repository) error {
	_, _, err := r.Manifest(context.Background(), ocispec.Descriptor{Digest: digest.FromString("x")})
	return err
}

func tagsOf(r *oci.Repository) error { return last(r.Tags(context.Background())) }

// last returns the error that a list ends with.
func last[T any](list func(func(T, error) bool)) (err error) {
	for _, err = range list {
	}
	return err
}

// Every phase ends with its context.
func TestStalls(t *testing.T) {
	b := testenv.Blob{Data: bytes.Repeat([]byte("x"), 1<<20)}
	subject := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 1}
	manifest := []byte(`{"schemaVersion":2,"config":{},"layers":[]}`)
	for _, row := range []struct {
		phase testenv.Phase
		after int64
		do    func(ctx context.Context, r *oci.Repository) error
	}{
		{testenv.HeadManifest, -1, func(ctx context.Context, r *oci.Repository) error { _, err := r.Head(ctx, "v1"); return err }},
		{testenv.GetToken, -1, func(ctx context.Context, r *oci.Repository) error { _, err := r.Head(ctx, "v1"); return err }},
		{testenv.GetToken, 3, func(ctx context.Context, r *oci.Repository) error { _, err := r.Head(ctx, "v1"); return err }},
		{testenv.GetManifest, 3, func(ctx context.Context, r *oci.Repository) error {
			_, _, err := r.Manifest(ctx, ocispec.Descriptor{Digest: testenv.Blob{Data: manifest}.Descriptor().Digest})
			return err
		}},
		{testenv.GetBlob, -1, func(ctx context.Context, r *oci.Repository) error { _, err := r.Blob(ctx, b.Descriptor()); return err }},
		{testenv.GetBlob, 100_000, func(ctx context.Context, r *oci.Repository) error {
			content, err := r.Blob(ctx, b.Descriptor())
			if err != nil {
				return err
			}
			defer content.Close()
			_, err = io.Copy(io.Discard, content)
			return err
		}},
		{testenv.ListTags, 3, func(ctx context.Context, r *oci.Repository) error { return last(r.Tags(ctx)) }},
		{testenv.ListReferrers, 3, func(ctx context.Context, r *oci.Repository) error { return last(r.Referrers(ctx, subject, "")) }},
		{testenv.PutBlob, -1, func(ctx context.Context, r *oci.Repository) error {
			return r.Push(ctx, testenv.Blob{Data: []byte("new")}.Descriptor(), strings.NewReader("new"))
		}},
	} {
		t.Run(fmt.Sprint(row.phase, row.after), func(t *testing.T) {
			c := testenv.RegistryConfig{}
			if row.phase == testenv.GetToken {
				c.Bearer = &testenv.Bearer{Anonymous: true}
			}
			g := testenv.StartRegistry(t, c)
			g.PushBlob("team/app", b)
			g.PushRaw("team/app", "v1", ocispec.MediaTypeImageManifest, manifest)
			r, _ := connect(t, oci.Access{URL: g.URL("team/app"), Insecure: true}, source.Env{})
			ctx, cancel := context.WithCancelCause(t.Context())
			stalled := g.Break(&testenv.Defect{Phase: row.phase, Do: testenv.Stall, After: row.after})
			go func() {
				<-stalled
				cancel(errors.New("enough"))
			}()
			if err := row.do(ctx, r); !errors.Is(err, context.Canceled) && !strings.Contains(fmt.Sprint(err), "enough") {
				t.Error(err)
			}
		})
	}
}
