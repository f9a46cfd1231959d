package oci_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// secrets are the Secrets of a test, by name; those of service accounts have
// the name account/NAME.
type secrets map[string]map[string]string

func (s secrets) Secret(_ context.Context, _, name string) (source.Secret, error) {
	data, ok := s[name]
	if !ok {
		return source.Secret{}, fs.ErrNotExist
	}
	out := source.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		out.Data[k] = []byte(v)
	}
	return out, nil
}

func (s secrets) PullSecrets(ctx context.Context, ns, account string) ([]source.Secret, error) {
	one, err := s.Secret(ctx, ns, "account/"+account)
	return []source.Secret{one}, err
}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }

// connect returns the repository for a, and the SecretReader that it used.
func connect(t *testing.T, a oci.Access, env source.Env) (*oci.Repository, *transport.SecretReader) {
	t.Helper()
	v := &transport.SecretReader{Namespace: "apps", From: env.Secrets}
	r, err := oci.Connect(t.Context(), a, env, v)
	must(t, err)
	t.Cleanup(r.Close)
	return r, v
}

// plain returns the repository team/app of g, without TLS and credentials.
func plain(t *testing.T, g *testenv.Registry) *oci.Repository {
	t.Helper()
	r, _ := connect(t, oci.Access{URL: g.URL("team/app"), Insecure: true}, source.Env{})
	return r
}

func layer(text string) testenv.Manifest {
	return testenv.Manifest{ArtifactType: "application/x.test", Layers: []testenv.Blob{{MediaType: "text/plain", Data: []byte(text)}}}
}

func collect[T any](t *testing.T, list func(func(T, error) bool)) (all []T) {
	t.Helper()
	for v, err := range list {
		must(t, err)
		all = append(all, v)
	}
	return all
}

func TestHostileLists(t *testing.T) {
	elsewhere := testenv.StartRegistry(t, testenv.RegistryConfig{})
	link := func(to string) *testenv.Defect {
		return serve(testenv.ListTags, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "<"+strings.ReplaceAll(to, "HOST", r.Host)+`>; rel="next"`)
			io.WriteString(w, `{"tags":["a"]}`)
		})
	}
	u, _ := url.Parse(elsewhere.Base)
	for name, row := range map[string]struct {
		defect *testenv.Defect
		want   string
	}{
		"without end": {serve(testenv.ListTags, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("last"))
			w.Header().Set("Link", fmt.Sprintf(`<?last=%d>; rel="next"`, n+1))
			io.WriteString(w, `{"tags":["a"]}`)
		}), "more than 2000 pages"},
		"that leads to itself":      {link("http://HOST/v2/team/app/tags/list?last=1"), "was there before"},
		"that goes on elsewhere":    {link(elsewhere.Base + "/v2/x/tags/list"), "not the registry"},
		"that goes on at localhost": {link("http://localhost:" + u.Port() + "/v2/x/tags/list"), "not the registry"},
		"that changes the scheme":   {link("https://HOST/v2/x"), "not the registry"},
		"that names a user":         {link("http://ann:x@HOST/v2/x"), "not the registry"},
		"with a link of 1 MB":       {link("/" + strings.Repeat("x", 100<<10)), "at most 8192"},
		"that is HTML":              {&testenv.Defect{Phase: testenv.ListTags, Status: http.StatusOK, Body: "<html>"}, "no list"},
		"of numbers":                {&testenv.Defect{Phase: testenv.ListTags, Status: http.StatusOK, Body: `{"tags":[1]}`}, "no list"},
		"of too many bytes": {serve(testenv.ListTags, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("last"))
			w.Header().Set("Link", fmt.Sprintf(`<?last=%d>; rel="next"`, n+1))
			io.WriteString(w, `{"x":"`+strings.Repeat("x", 4<<20-100)+`","tags":["a"]}`)
		}), "more than 67108864 bytes"},
		"of too many tags": {serve(testenv.ListTags, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("last"))
			w.Header().Set("Link", fmt.Sprintf(`</v2/team/app/tags/list?last=%d>; rel="next"`, n+1))
			io.WriteString(w, `{"tags":["a"`+strings.Repeat(`,"a"`, 30_000)+`]}`)
		}), "more than 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "of too many bytes" {
				measure.WithoutRace(t)
			}
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			g.Break(row.defect)
			testenv.ErrorSays(t, listTags(plain(t, g)), row.want)
		})
	}
	if elsewhere.Count() > 0 {
		t.Error(elsewhere.Requests())
	}
}

func TestOddLists(t *testing.T) {
	for name, row := range map[string]struct{ body, link, want string }{
		"names no tag has":   {`{"tags":["a","","b/c","../d","-e","f g","` + strings.Repeat("x", 129) + `","\u001b[2J","h"]}`, "", "a h"},
		"null":               {`{"name":"x","tags":null}`, "", ""},
		"nothing":            {`{}`, "", ""},
		"a link to the last": {`{"tags":["a"]}`, `</x>; rel="last"`, "a"},
		"a link to nothing":  {`{"tags":["a"]}`, `garbage`, "a"},
	} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		g.Break(&testenv.Defect{Phase: testenv.ListTags, Status: http.StatusOK, Body: row.body, Header: http.Header{"Link": {row.link}}})
		testenv.Equal(t, strings.Join(collect(t, plain(t, g).Tags(t.Context())), " "), row.want, name)
	}
}

func TestReferrers(t *testing.T) {
	for _, none := range []bool{false, true} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: none})
		subject := g.Push("team/app", "v1", layer("x"))
		of := func(kind, text string) ocispec.Descriptor {
			return g.Push("team/app", "", testenv.Manifest{ArtifactType: kind, Subject: &subject, Layers: []testenv.Blob{{Data: []byte(text)}},
				Annotations: map[string]string{"a": text}})
		}
		a, b := of("application/x.a", "1"), of("application/x.b", "2")
		r := plain(t, g)
		testenv.Equal(t, len(collect(t, r.Referrers(t.Context(), subject, ""))), 2, none)
		for kind, want := range map[string]ocispec.Descriptor{"application/x.a": a, "application/x.b": b} {
			all := collect(t, r.Referrers(t.Context(), subject, kind))
			if len(all) != 1 || all[0].Digest != want.Digest || all[0].ArtifactType != kind || all[0].Size != want.Size {
				t.Error(none, kind, all)
			}
		}
		testenv.Equal(t, len(collect(t, r.Referrers(t.Context(), subject, "application/x.c"))), 0, none)
	}
}

func TestHostileReferrers(t *testing.T) {
	subject := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 1}
	tag := strings.Replace(subject.Digest.String(), ":", "-", 1)
	entry := func(d string, size int) string {
		return fmt.Sprintf(`{"mediaType":"%s","digest":"%s","size":%d}`, ocispec.MediaTypeImageManifest, d, size)
	}
	good := entry(digest.FromString("a").String(), 3)
	for name, row := range map[string]struct {
		entries, want string
		n             int
	}{
		"listed twice":     {good + "," + good, "", 1},
		"without digest":   {good + `,{"size":1}`, "is no digest", 0},
		"of huge size":     {entry(digest.FromString("a").String(), 5<<20), "at most", 0},
		"of negative size": {entry(digest.FromString("a").String(), -1), "size -1", 0},
		"that are many":    {good + strings.Repeat(",{}", 20_000), "more than", 0},
		"that are no list": {`1]}garbage`, "invalid", 0},
	} {
		text := `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageIndex + `","manifests":[` + row.entries + `]}`
		for _, api := range []bool{true, false} {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			if api {
				g.Break(serve(testenv.ListReferrers, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
					io.WriteString(w, text)
				}))
			} else {
				g.Break(&testenv.Defect{Phase: testenv.ListReferrers, Status: http.StatusNotFound})
				g.Override("team/app", tag, false, ocispec.MediaTypeImageIndex, []byte(text))
			}
			n := 0
			var err error
			for d, fault := range plain(t, g).Referrers(t.Context(), subject, "") {
				if err = fault; err == nil && d.Digest != "" {
					n++
				}
			}
			if row.want == "" && (err != nil || n != row.n) || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%s, API %v: %d, %v", name, api, n, err)
			}
		}
	}
}

// TestReferrersFallback checks which responses to a list of referrers make the client use
// the referrers tag; others are errors.
func TestReferrersFallback(t *testing.T) {
	for _, status := range []int{200, 400, 404, 405, 501, 401, 403, 500} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: true})
		subject := g.Push("team/app", "v1", layer("x"))
		g.Push("team/app", "", testenv.Manifest{ArtifactType: "application/x.a", Subject: &subject})
		g.Break(&testenv.Defect{Phase: testenv.ListReferrers, Status: status, Body: "<html>"})
		n, err := 0, error(nil)
		for _, err = range plain(t, g).Referrers(t.Context(), subject, "") {
			n++
		}
		if refused := status == 401 || status == 403 || status == 500; refused != (err != nil) || n != 1 {
			t.Error(status, n, err)
		}
	}
	// The tag may name the subject or another index that is not a list of referrers.
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(&testenv.Defect{Phase: testenv.ListReferrers, Status: http.StatusNotFound})
	subject := g.PushIndex("team/app", "v1", testenv.Index{Manifests: []ocispec.Descriptor{g.Push("team/app", "", layer("x"))}})
	tag := strings.Replace(subject.Digest.String(), ":", "-", 1)
	g.PushRaw("team/app", tag, subject.MediaType, g.Manifest("team/app", "v1"))
	testenv.Equal(t, len(collect(t, plain(t, g).Referrers(t.Context(), subject, ""))), 0)
}

// TestReferrersLongTag checks that the tag of a long digest is shortened as the distribution
// specification requires.
func TestReferrersLongTag(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: true})
	manifest := g.Push("team/app", "", layer("x"))
	index := g.PushIndex("team/app", "v1", testenv.Index{Manifests: []ocispec.Descriptor{manifest}})
	subject := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.SHA512.FromString("subject"), Size: 7}
	g.PushRaw("team/app", "sha512-"+subject.Digest.Encoded()[:64], index.MediaType, g.Manifest("team/app", "v1"))
	if all := collect(t, plain(t, g).Referrers(t.Context(), subject, "")); len(all) != 1 || all[0].Digest != manifest.Digest {
		t.Error(all)
	}
}

// A guardedRegistry registry uses TLS and requires credentials, which it has together with its CA.
type guardedRegistry struct {
	*testenv.Registry
	ca     *testenv.CA
	config string // dockerconfigjson
}

const password = "open sesame"

// access returns the Access and environment for the repository team/app of g.
func (g guardedRegistry) access() (oci.Access, source.Env) {
	return oci.Access{URL: g.URL("team/app"), Cert: ref("ca"), Secret: ref("reg")},
		source.Env{Secrets: secrets{"ca": {"ca.crt": string(g.ca.PEM())}, "reg": {".dockerconfigjson": g.config}}}
}

func newGuardedRegistry(t *testing.T, ca *testenv.CA, bearer *testenv.Bearer) guardedRegistry {
	t.Helper()
	g := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Username: "ann", Password: password, Bearer: bearer})
	return guardedRegistry{g, ca, dockerconfig(g.Host, "ann", password)}
}

// bare fails the test if any request has credentials.
func bare(t *testing.T, requests []testenv.Request) {
	t.Helper()
	for _, q := range requests {
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
			testenv.Equal(t, q.Header.Get(name), "", "%s %s came with %s", q.Method, q.Path, name)
		}
		if q.Certificate != "" || strings.Contains(string(q.Body), password) {
			t.Errorf("%s %s came with %s %s", q.Method, q.Path, q.Certificate, q.Body)
		}
	}
}

// TestWrongScheme checks the errors for a server without TLS in place of one with TLS, and
// vice versa.
func TestWrongScheme(t *testing.T) {
	ca := testenv.NewCA(t)
	tls, open := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca}), testenv.StartRegistry(t, testenv.RegistryConfig{})
	insecure, _ := connect(t, oci.Access{URL: tls.URL("team/app"), Insecure: true}, source.Env{})
	secure, _ := connect(t, oci.Access{URL: open.URL("team/app")}, source.Env{})
	raw := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Write([]byte("\x15\x03\x01\x00\x02\x02\x46")) // a fatal alert
		conn.Close()
	}))
	t.Cleanup(raw.Close)
	alert, _ := connect(t, oci.Access{URL: "oci://" + strings.TrimPrefix(raw.URL, "http://") + "/team/app", Insecure: true}, source.Env{})
	for r, want := range map[*oci.Repository]string{insecure: "remove spec.insecure", alert: "remove spec.insecure", secure: "set spec.insecure"} {
		_, err := r.Head(t.Context(), "v1")
		testenv.ErrorSays(t, err, want, "%T", r)
	}
	unknown, _ := connect(t, oci.Access{URL: tls.URL("team/app")}, source.Env{})
	_, err := unknown.Head(t.Context(), "v1")
	testenv.ErrorSays(t, err, "certificate")
}

// TestUploadElsewhere checks that uploads are not sent to another server.
func TestUploadElsewhere(t *testing.T) {
	ca := testenv.NewCA(t)
	g, other := newGuardedRegistry(t, ca, nil), newGuardedRegistry(t, ca, nil)
	g.Break(&testenv.Defect{Phase: testenv.PutBlob, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Location", other.Base+r.URL.Path+"x")
		w.WriteHeader(http.StatusAccepted)
	}})
	access, env := g.access()
	r, _ := connect(t, access, env)
	b := testenv.Blob{Data: []byte("x")}
	if err := r.Push(context.WithoutCancel(t.Context()), b.Descriptor(), strings.NewReader("x")); err == nil || other.Count() > 0 {
		t.Error(err, other.Count())
	}
}

func TestOddChallenges(t *testing.T) {
	for header, want := range map[string]string{
		``:                                "401 Unauthorized",
		`Negotiate`:                       "401 Unauthorized",
		`realm="x"`:                       "401 Unauthorized",
		`Basic realm="x`:                  "404 Not Found",
		`Bearer`:                          "names nothing as its token service",
		`Bearer realm=""`:                 "names nothing",
		`Negotiate abc, Basic realm="a"`:  "404 Not Found",
		`Digest a="\"b", BASIC realm="a"`: "404 Not Found",
		strings.Repeat("x", 10<<10):       "401 Unauthorized",
	} {
		ca := testenv.NewCA(t)
		g := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca})
		g.Break(serve("", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("WWW-Authenticate", header)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		access, env := guardedRegistry{g, ca, dockerconfig(g.Host, "ann", password)}.access()
		r, _ := connect(t, access, env)
		_, err := r.Head(t.Context(), "v1")
		testenv.ErrorSays(t, err, want, header)
	}
}
