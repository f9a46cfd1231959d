package oci_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
)

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
