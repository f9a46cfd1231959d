package testenv_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/headgate-io/headgate/internal/testenv"
)

const password = "cAnArY-passw0rd/+="

// client returns a real client of a repository.
func client(t *testing.T, g *testenv.Registry, ca *testenv.CA, c auth.Credential) *remote.Repository {
	t.Helper()
	r, err := remote.NewRepository(g.Host + "/some/app")
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Client{Transport: &http.Transport{}}
	if ca != nil {
		h.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}}
	}
	t.Cleanup(h.CloseIdleConnections)
	r.PlainHTTP = ca == nil
	r.Client = &auth.Client{Client: h, Credential: func(context.Context, string) (auth.Credential, error) { return c, nil }}
	return r
}

func oneFile(t *testing.T) testenv.Manifest {
	return testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, fstest.MapFS{"a": {Data: []byte("hello\n")}})},
		Annotations: map[string]string{ocispec.AnnotationRevision: "main@sha1:1"}}
}

func read(t *testing.T, r *remote.Repository, d ocispec.Descriptor) ([]byte, error) {
	t.Helper()
	body, err := r.Fetch(t.Context(), d)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

func TestRegistryAdmits(t *testing.T) {
	ca := testenv.NewCA(t)
	user := auth.Credential{Username: "user", Password: password}
	for name, c := range map[string]struct {
		config testenv.RegistryConfig
		with   auth.Credential
		pull   bool
		push   bool
		tokens int // requests for tokens
	}{
		"public":               {testenv.RegistryConfig{}, auth.Credential{}, true, true, 0},
		"public, with a login": {testenv.RegistryConfig{}, user, true, true, 0},
		"basic":                {testenv.RegistryConfig{Username: "user", Password: password}, user, true, true, 0},
		"basic over TLS":       {testenv.RegistryConfig{CA: ca, Username: "user", Password: password}, user, true, true, 0},
		"wrong password":       {testenv.RegistryConfig{Username: "user", Password: "other"}, user, false, false, 0},
		"bearer":               {testenv.RegistryConfig{Username: "user", Password: password, Bearer: &testenv.Bearer{}}, user, true, true, 2},
		"bearer, nobody":       {testenv.RegistryConfig{Username: "user", Password: password, Bearer: &testenv.Bearer{}}, auth.Credential{}, false, false, 2},
		"bearer, anonymous":    {testenv.RegistryConfig{Bearer: &testenv.Bearer{Anonymous: true}}, auth.Credential{}, true, false, 2},
		"identity token":       {testenv.RegistryConfig{Bearer: &testenv.Bearer{IdentityToken: "refresh"}}, auth.Credential{RefreshToken: "refresh"}, true, true, 2},
		"other identity token": {testenv.RegistryConfig{Bearer: &testenv.Bearer{IdentityToken: "refresh"}}, auth.Credential{RefreshToken: "other"}, false, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, c.config)
			want := g.Push("some/app", "v1", oneFile(t))
			r := client(t, g, c.config.CA, c.with)
			got, err := r.Resolve(t.Context(), "v1")
			if c.pull != (err == nil) || err == nil && got.Digest != want.Digest {
				t.Errorf("resolved %v, %v; want %v", got, err, want.Digest)
			}
			err = r.PushReference(t.Context(), want, bytes.NewReader(g.Manifest("some/app", "v1")), "v2")
			if c.push != (err == nil) {
				t.Errorf("push: %v", err)
			}
			if n := g.Count(testenv.GetToken); n != c.tokens {
				t.Errorf("%d requests for tokens, want %d", n, c.tokens)
			}
		})
	}
}

func TestRegistryServesContent(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	m := oneFile(t)
	d := g.Push("some/app", "v1", m)
	x := g.PushIndex("some/app", "all", testenv.Index{Manifests: []ocispec.Descriptor{d}})
	r := client(t, g, nil, auth.Credential{})
	if got, err := r.Resolve(t.Context(), "all"); err != nil || got.Digest != x.Digest || got.MediaType != ocispec.MediaTypeImageIndex {
		t.Errorf("index %v, %v", got, err)
	}
	layer := m.Layers[0]
	if got, err := read(t, r, layer.Descriptor()); err != nil || !bytes.Equal(got, layer.Data) {
		t.Errorf("layer: %d bytes, %v", len(got), err)
	}
	if g.BlobBytes() != int64(len(layer.Data)) || g.Count(testenv.GetBlob) != 1 || g.Count(testenv.HeadManifest) != 1 {
		t.Errorf("%d bytes of blobs, requests %+v", g.BlobBytes(), g.Requests())
	}
	g.Reset()
	if g.BlobBytes() != 0 || g.Count() != 0 {
		t.Error("not reset")
	}
	g.Untag("some/app", "v1")
	if _, err := r.Resolve(t.Context(), "v1"); err == nil {
		t.Error("v1 is still there")
	}
	g.Plant("some/app", layer.Descriptor().Digest.String(), true, "", []byte("planted"))
	resp, err := http.Get(g.Base + "/v2/some/app/blobs/" + layer.Descriptor().Digest.String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); string(text) != "planted" || resp.Header.Get("Docker-Content-Digest") != layer.Descriptor().Digest.String() {
		t.Errorf("planted blob is %q, %v", text, resp.Header)
	}
}

func TestRegistryTurnsPages(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{PageSize: 2})
	want := []string{"a", "b", "c", "d", "e"}
	for _, tag := range want {
		g.Push("some/app", tag, oneFile(t))
	}
	r := client(t, g, nil, auth.Credential{})
	var got []string
	err := r.Tags(t.Context(), "", func(tags []string) error { got = append(got, tags...); return nil })
	if err != nil || !slices.Equal(got, want) || g.Count(testenv.ListTags) != 3 {
		t.Errorf("%v, %v, %d pages", got, err, g.Count(testenv.ListTags))
	}
}

func TestRegistryRefers(t *testing.T) {
	for _, off := range []bool{false, true} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: off})
		subject := g.Push("some/app", "v1", oneFile(t))
		sign := func(kind string) ocispec.Descriptor {
			return g.Push("some/app", "", testenv.Manifest{ArtifactType: kind, Subject: &subject, Annotations: map[string]string{"of": kind}})
		}
		want := sign("application/a")
		sign("application/b")
		r := client(t, g, nil, auth.Credential{})
		var got []ocispec.Descriptor
		err := r.Referrers(t.Context(), subject, "application/a", func(page []ocispec.Descriptor) error { got = append(got, page...); return nil })
		if err != nil || len(got) != 1 || got[0].Digest != want.Digest || got[0].ArtifactType != "application/a" || got[0].Annotations["of"] != "application/a" {
			t.Errorf("without the API %v: %+v, %v", off, got, err)
		}
	}
}

func TestRegistryMisbehaves(t *testing.T) {
	aside := testenv.StartRegistry(t, testenv.RegistryConfig{})
	aside.Push("some/app", "v1", oneFile(t))
	redirect := testenv.Redirect(aside.Base)
	redirect.Phase = testenv.GetBlob
	for name, c := range map[string]struct {
		defect testenv.Defect
		want   string // of the error
	}{
		"no HEAD":   {testenv.Defect{Phase: testenv.HeadManifest, Status: http.StatusMethodNotAllowed}, "405"},
		"cut":       {testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Cut, After: 20}, "unexpected EOF"},
		"end":       {testenv.Defect{Phase: testenv.GetBlob, Do: testenv.End, After: 20}, "20 bytes"},
		"flip":      {testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Flip, After: 20}, "other bytes"},
		"leak":      {testenv.Defect{Phase: testenv.HeadBlob, Do: testenv.Leak, Status: 500}, ""},
		"leak here": {testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Leak, Status: 500}, password},
		"swell":     {testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Swell, After: 100000}, "other bytes"},
		"serve": {testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			http.Error(w, "as told", http.StatusTeapot)
		}}, "418"},
		"redirect": {*redirect, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "user", Password: password, Defect: &c.defect})
			m := oneFile(t)
			g.Push("some/app", "v1", m)
			r := client(t, g, nil, auth.Credential{Username: "user", Password: password})
			_, err := r.Resolve(t.Context(), "v1")
			if err == nil {
				var got []byte
				layer := m.Layers[0]
				got, err = read(t, r, layer.Descriptor())
				switch {
				case err != nil || bytes.Equal(got, layer.Data):
				case bytes.HasPrefix(layer.Data, got):
					err = fmt.Errorf("%d bytes", len(got))
				default:
					err = errors.New("other bytes")
				}
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if n := aside.Count(testenv.GetBlob); n != 1 {
		t.Errorf("%d requests were redirected", n)
	}
}
