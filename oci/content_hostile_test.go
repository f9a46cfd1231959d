package oci_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
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

// What a registry leaves out is found out by other means.
func TestHeadFallback(t *testing.T) {
	for name, row := range map[string]struct {
		defect *testenv.Defect
		gets   int
	}{
		"no HEAD":           {&testenv.Defect{Phase: testenv.HeadManifest, Status: http.StatusMethodNotAllowed}, 1},
		"HEAD not done":     {&testenv.Defect{Phase: testenv.HeadManifest, Status: http.StatusNotImplemented}, 1},
		"no digest":         {without(testenv.HeadManifest, "Docker-Content-Digest"), 1},
		"no digest at all":  {without("", "Docker-Content-Digest"), 1},
		"no length":         {without(testenv.HeadManifest, "Content-Length"), 0},
		"no type":           {without("", "Content-Type"), 0},
		"nothing but bytes": {without("", "Content-Type", "Content-Length", "Docker-Content-Digest"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			want := g.Push("team/app", "v1", layer("x"))
			g.Break(row.defect)
			r := plain(t, g)
			for _, reference := range []string{"v1", want.Digest.String()} {
				g.Reset()
				d, err := r.Head(t.Context(), reference)
				if err != nil || d.Digest != want.Digest || d.Size != 0 && d.Size != want.Size || g.Count(testenv.GetManifest) != row.gets {
					t.Error(reference, d, err, g.Count(testenv.GetManifest))
				}
				d, _, err = r.Manifest(t.Context(), d)
				if err != nil || d.Digest != want.Digest || d.Size != want.Size || d.MediaType != want.MediaType {
					t.Error(reference, d, err)
				}
			}
		})
	}
}

func TestHostileManifests(t *testing.T) {
	const manifest, index = ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex
	good := `{"schemaVersion":2,"config":{},"layers":[]}`
	for name, row := range map[string]struct {
		header, text string
		d            ocispec.Descriptor // digest and size are those of text when it has none
		want         string             // part of the error
		mediaType    string             // of the result, when there is no error
	}{
		"of other content":          {manifest, good, ocispec.Descriptor{Digest: digest.FromString("other")}, "instead of", ""},
		"that is longer":            {manifest, good, ocispec.Descriptor{Size: 10}, "goes on behind its 10 bytes", ""},
		"that is shorter":           {manifest, good, ocispec.Descriptor{Size: 1000}, "of 1000 bytes", ""},
		"of two types, header":      {index, `{"mediaType":"` + manifest + `","layers":[]}`, ocispec.Descriptor{}, "here and", ""},
		"of two types, descriptor":  {"", `{"mediaType":"` + manifest + `","layers":[]}`, ocispec.Descriptor{MediaType: index}, "here and", ""},
		"of two types, no field":    {manifest, good, ocispec.Descriptor{MediaType: index}, "here and", ""},
		"of both kinds":             {manifest, `{"layers":[],"manifests":[]}`, ocispec.Descriptor{}, "at once", ""},
		"of the other kind":         {manifest, `{"manifests":[]}`, ocispec.Descriptor{}, "not what its media type", ""},
		"of the other kind, index":  {index, good, ocispec.Descriptor{}, "not what its media type", ""},
		"that is no JSON":           {manifest, "<html>", ocispec.Descriptor{}, "no manifest", ""},
		"that is empty":             {manifest, "", ocispec.Descriptor{}, "no manifest", ""},
		"nested without end":        {manifest, strings.Repeat("[", 1<<20), ocispec.Descriptor{}, "no manifest", ""},
		"of no type":                {"", `{}`, ocispec.Descriptor{}, "nothing tells", ""},
		"of a vague type":           {"application/json; charset=utf-8", `{"mediaType":"` + index + `","manifests":[]}`, ocispec.Descriptor{}, "", index},
		"of a malformed type":       {";;", good, ocispec.Descriptor{}, "", manifest},
		"that looks like an index":  {"text/plain", `{"manifests":[]}`, ocispec.Descriptor{}, "", index},
		"whose descriptor knows":    {"", `{"x":1}`, ocispec.Descriptor{MediaType: "application/x.y"}, "", "application/x.y"},
		"with a digest of nothing":  {manifest, good, ocispec.Descriptor{Digest: "sha256:../../x"}, "is no digest", ""},
		"with a digest of md5":      {manifest, good, ocispec.Descriptor{Digest: "md5:d41d8cd98f00b204e9800998ecf8427e"}, "is no digest", ""},
		"with a digest, upper case": {manifest, good, ocispec.Descriptor{Digest: digest.Digest("sha256:" + strings.Repeat("A", 64))}, "is no digest", ""},
		"with a digest of sha512":   {manifest, good, ocispec.Descriptor{Digest: digest.SHA512.FromString(good)}, "", manifest},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			if row.d.Digest == "" {
				row.d.Digest = digest.FromString(row.text)
			}
			g.Plant("team/app", row.d.Digest.String(), false, row.header, []byte(row.text))
			d, content, err := plain(t, g).Manifest(t.Context(), row.d)
			switch {
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Error(err)
			case row.want == "" && (err != nil || d.MediaType != row.mediaType || string(content) != row.text || d.Size != int64(len(row.text))):
				t.Error(d, err)
			}
		})
	}
}

func TestHeadLies(t *testing.T) {
	for name, claim := range map[string]string{"of no digest": "sha256:xyz", "of another digest": digest.FromString("y").String()} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		g.Break(serve(testenv.HeadManifest, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Docker-Content-Digest", claim) }))
		if _, err := plain(t, g).Head(t.Context(), digest.FromString("x").String()); err == nil {
			t.Error(name, "is accepted")
		}
	}
	r := plain(t, testenv.StartRegistry(t, testenv.RegistryConfig{}))
	for _, reference := range []string{"", "a b", "-x", "../x", "v1?x", "sha256:abc", strings.Repeat("x", 129), "a/b", "v1\n"} {
		if _, err := r.Head(t.Context(), reference); err == nil || !strings.Contains(err.Error(), "neither a tag") {
			t.Errorf("%q: %v", reference, err)
		}
		if err := r.Tag(t.Context(), ocispec.Descriptor{Digest: digest.FromString("x")}, reference); err == nil {
			t.Errorf("%q: is accepted", reference)
		}
	}
}

// allocated returns how many bytes were allocated by do.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
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
			used := allocated(func() { err = row.do(r) })
			if err == nil || len(err.Error()) > 1000 {
				t.Error(err)
			}
			if used > 64<<20 {
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

func TestRefusalText(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(&testenv.Defect{Status: http.StatusForbidden, Body: `{"errors":[{"code":"DENIED","message":"\u001b[2Jno ` + strings.Repeat("x", 1000) + `"}]}`})
	err := manifestOf1(plain(t, g))
	e, ok := errors.AsType[*oci.StatusError](err)
	if !ok || e.Status != http.StatusForbidden || e.Code != "DENIED" || len(e.Message) > 300 || strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("%q", err)
	}
}

func TestHostileBlobs(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	d := testenv.Blob{Data: data}.Descriptor()
	for name, row := range map[string]struct {
		content []byte
		told    bool // its length
		want    string
	}{
		"right":             {data, true, ""},
		"right, untold":     {data, false, ""},
		"short":             {data[:len(data)-1], true, "of 1048576 bytes"},
		"short, untold":     {data[:len(data)-1], false, "after 1048575 of 1048576 bytes"},
		"empty, untold":     {nil, false, "after 0 of 1048576 bytes"},
		"long":              {append(bytes.Clone(data), 'x'), true, "goes on behind"},
		"long, untold":      {append(bytes.Clone(data), 'x'), false, "goes on behind"},
		"of another digest": {bytes.Repeat([]byte("x"), len(data)), true, "instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			g.Break(serve(testenv.GetBlob, func(w http.ResponseWriter, _ *http.Request) {
				if row.told {
					w.Header().Set("Content-Length", strconv.Itoa(len(row.content)))
				} else {
					http.NewResponseController(w).Flush()
				}
				w.Write(row.content)
			}))
			r := plain(t, g)
			for way, read := range map[string]func(io.Reader) (int64, error){
				"Read":    func(c io.Reader) (int64, error) { n, err := io.ReadAll(c); return int64(len(n)), err },
				"WriteTo": func(c io.Reader) (int64, error) { return c.(io.WriterTo).WriteTo(io.Discard) },
				"exactly": func(c io.Reader) (int64, error) {
					n, err := io.ReadFull(c, make([]byte, len(data)))
					return int64(n), err
				},
			} {
				content, err := r.Blob(t.Context(), d)
				if err == nil {
					_, err = read(content)
					if again, more := content.Read(make([]byte, 1)); again != 0 || more == nil || row.want != "" && more == io.EOF {
						t.Error(way, "goes on:", again, more)
					}
					content.Close()
				}
				if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want) || !errors.As(err, new(*oci.ContentError))) {
					if way == "exactly" && strings.Contains(row.want, "goes on") || way == "exactly" && row.want == "instead of" {
						continue // io.ReadFull keeps an error that comes with the last byte to itself
					}
					t.Error(way, err)
				}
			}
		})
	}
	r := plain(t, testenv.StartRegistry(t, testenv.RegistryConfig{}))
	for _, bad := range []ocispec.Descriptor{{Digest: d.Digest, Size: -1}, {Digest: "x", Size: 1}, {Size: 1}} {
		if _, err := r.Blob(t.Context(), bad); err == nil {
			t.Error(bad, "is accepted")
		}
	}
}

// A blob is not held in memory.
func TestBlobStreams(t *testing.T) {
	const size = 256 << 20
	h := digest.Canonical.Digester()
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		h.Hash().Write(zeros)
	}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve(testenv.GetBlob, func(w http.ResponseWriter, _ *http.Request) {
		for range size >> 20 {
			w.Write(zeros)
		}
	}))
	r := plain(t, g)
	used := allocated(func() {
		content, err := r.Blob(t.Context(), ocispec.Descriptor{Digest: h.Digest(), Size: size})
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		if n, err := io.Copy(io.Discard, content); n != size || err != nil {
			t.Error(n, err)
		}
	})
	if used > 8<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
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
		"without end":               {&testenv.Defect{Phase: testenv.ListTags, Do: testenv.Endless}, "more than 2000 pages"},
		"that leads to itself":      {&testenv.Defect{Phase: testenv.ListTags, Do: testenv.Loop}, "was there before"},
		"that goes on elsewhere":    {link(elsewhere.Base + "/v2/x/tags/list"), "not the registry"},
		"that goes on at localhost": {link("http://localhost:" + u.Port() + "/v2/x/tags/list"), "not the registry"},
		"that changes the scheme":   {link("https://HOST/v2/x"), "not the registry"},
		"that names a user":         {link("http://ann:x@HOST/v2/x"), "not the registry"},
		"with a link of 1 MB":       {link("/" + strings.Repeat("x", 100<<10)), "at most 8192"},
		"that is HTML":              {&testenv.Defect{Phase: testenv.ListTags, Status: http.StatusOK, Body: "<html>"}, "no list"},
		"of numbers":                {&testenv.Defect{Phase: testenv.ListTags, Status: http.StatusOK, Body: `{"tags":[1]}`}, "no list"},
		"of too many tags": {serve(testenv.ListTags, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("last"))
			w.Header().Set("Link", fmt.Sprintf(`</v2/team/app/tags/list?last=%d>; rel="next"`, n+1))
			io.WriteString(w, `{"tags":["a"`+strings.Repeat(`,"a"`, 30_000)+`]}`)
		}), "more than 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			g.Break(row.defect)
			if err := tagsOf(plain(t, g)); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Error(err)
			}
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
		if got := strings.Join(collect(t, plain(t, g).Tags(t.Context())), " "); got != row.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A list is read as far as it is wanted.
func TestListEndsEarly(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(&testenv.Defect{Phase: testenv.ListTags, Do: testenv.Endless})
	for range plain(t, g).Tags(t.Context()) {
		break
	}
	if n := g.Count(testenv.ListTags); n != 1 {
		t.Errorf("%d pages", n)
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
		if all := collect(t, r.Referrers(t.Context(), subject, "")); len(all) != 2 {
			t.Error(none, all)
		}
		for kind, want := range map[string]ocispec.Descriptor{"application/x.a": a, "application/x.b": b} {
			all := collect(t, r.Referrers(t.Context(), subject, kind))
			if len(all) != 1 || all[0].Digest != want.Digest || all[0].ArtifactType != kind || all[0].Size != want.Size {
				t.Error(none, kind, all)
			}
		}
		if all := collect(t, r.Referrers(t.Context(), subject, "application/x.c")); len(all) != 0 {
			t.Error(none, all)
		}
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
		"of negative size": {entry(digest.FromString("a").String(), -1), "at most", 0},
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
				g.Plant("team/app", tag, false, ocispec.MediaTypeImageIndex, []byte(text))
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

// Answers that are none of a list of referrers lead to the tag, others are errors.
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
	// The tag may name the subject, or something else that is no list.
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(&testenv.Defect{Phase: testenv.ListReferrers, Status: http.StatusNotFound})
	subject := g.PushIndex("team/app", "v1", testenv.Index{Manifests: []ocispec.Descriptor{g.Push("team/app", "", layer("x"))}})
	tag := strings.Replace(subject.Digest.String(), ":", "-", 1)
	g.PushRaw("team/app", tag, subject.MediaType, g.Manifest("team/app", "v1"))
	if all := collect(t, plain(t, g).Referrers(t.Context(), subject, "")); len(all) != 0 {
		t.Error(all)
	}
}

// The tag of a subject with a long digest is cut as the distribution specification says.
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
