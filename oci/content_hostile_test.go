package oci_test

import (
	"context"
	"net/http"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
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
