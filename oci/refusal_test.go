package oci_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
)

// A message is cut between words, or half a password would show: nobody knows it for one.
func TestRefusalKeepsWords(t *testing.T) {
	g := guard(t, testenv.NewCA(t), nil)
	access, env := g.access()
	for _, message := range []string{strings.Repeat("x ", 126) + password, strings.Repeat("y", 250) + " b3BlbiBzZXNhbWU=", strings.Repeat("z", 250) + password} {
		g.Break(&testenv.Defect{Status: http.StatusForbidden, Body: `{"errors":[{"code":"DENIED","message":"` + message + `"}]}`})
		r, _ := connect(t, access, env)
		err := manifestOf1(r)
		if e, ok := errors.AsType[*oci.StatusError](err); !ok || strings.Contains(e.Message, password[:4]) || strings.Contains(e.Message, "b3B") || len(e.Message) > 300 {
			t.Errorf("%q", err)
		}
	}
}

// The query of a redirect is a credential, which whom it is shown to may repeat.
func TestRefusalHidesSignature(t *testing.T) {
	const signature = "c2lnbmF0dXJl"
	storage := testenv.StartRegistry(t, testenv.RegistryConfig{})
	storage.Break(&testenv.Defect{Status: http.StatusForbidden, Body: `{"errors":[{"code":"DENIED","message":"signature ` + signature + ` expired"}]}`})
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve(testenv.GetManifest, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, storage.Base+r.URL.Path+"?sig="+signature, http.StatusTemporaryRedirect)
	}))
	err := manifestOf1(plain(t, g))
	if err == nil || strings.Contains(err.Error(), signature) || !strings.Contains(err.Error(), "expired") {
		t.Error(err)
	}
}

func TestPushRefused(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	r := plain(t, g)
	b := testenv.Blob{Data: []byte("abc")}
	d := b.Descriptor()
	for name, push := range map[string]func() error{
		"other content": func() error { return r.Push(t.Context(), d, strings.NewReader("xyz")) },
		"too short":     func() error { return r.Push(t.Context(), d, strings.NewReader("ab")) },
		"too long": func() error { // of which the registry may well keep the part that is right
			return r.Push(t.Context(), testenv.Blob{Data: []byte("def")}.Descriptor(), io.MultiReader(strings.NewReader("defg")))
		},
		"no digest": func() error { return r.Push(t.Context(), ocispec.Descriptor{Size: 3}, strings.NewReader("abc")) },
		"other manifest": func() error {
			return r.Push(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: d.Digest, Size: 3}, strings.NewReader("xyz"))
		},
		"huge manifest": func() error {
			return r.Push(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: d.Digest, Size: 3}, bytes.NewReader(make([]byte, 5<<20)))
		},
		"unknown manifest": func() error { return r.Tag(t.Context(), d, "v1") },
	} {
		if err := push(); err == nil {
			t.Error(name, "is accepted")
		}
	}
	g.Break(&testenv.Defect{Phase: testenv.PutBlob, Status: http.StatusForbidden, Body: `{"errors":[{"code":"DENIED","message":"read only"}]}`})
	err := r.Push(t.Context(), testenv.Blob{Data: []byte("new")}.Descriptor(), strings.NewReader("new"))
	if e, ok := errors.AsType[*oci.StatusError](err); !ok || !errors.Is(err, fs.ErrPermission) || e.Message != "read only" {
		t.Error(err)
	}
}
