package source

import (
	"strings"
	"testing"
)

func TestParseReference(t *testing.T) {
	for text, want := range map[string]Reference{
		"gitrepository/app":        {"GitRepository", "", "app"},
		"GitRepository/shop/app":   {"GitRepository", "shop", "app"},
		"gitrepos":                 {Kind: "GitRepository"},
		"helmrepo/charts":          {"PkgRepository", "", "charts"},
		"HelmChart/default/web":    {"PkgChart", "default", "web"},
		"hc/web":                   {"PkgChart", "", "web"},
		"ocirepositories/platform": {"OCIRepository", "", "platform"},
		"ea":                       {Kind: "ExternalArtifact"},
		"git":                      {Kind: "GitRepository"},
		"oci":                      {Kind: "OCIRepository"},
		"charts":                   {Kind: "PkgChart"},
		"externalartifacts":        {Kind: "ExternalArtifact"},
	} {
		if got, err := ParseReference(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                 "names no object",
		"gitrepository/":   "names no object",
		"git//app":         "names no object",
		"git/a/b/c":        "names no object",
		"pod/app":          `unknown kind "pod"`,
		"\x1b[1mgit\n/app": `unknown kind`,
	} {
		_, err := ParseReference(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestMasked(t *testing.T) {
	for _, obj := range []Object{
		&GitRepository{Spec: GitRepositorySpec{URL: "https://ci:canary@example.org/app.git"}},
		&OCIRepository{Spec: OCIRepositorySpec{URL: "oci://ci:canary@example.org/app"}},
		&PkgRepository{Spec: PkgRepositorySpec{URL: "https://ci:canary@example.org"}},
		&Bucket{Spec: BucketSpec{Endpoint: "https://example.org/?sig=canary", BucketName: "assets"}},
		&GitRepository{Spec: GitRepositorySpec{URL: "https://canary@example.org/app.git"}},
		&GitRepository{Spec: GitRepositorySpec{URL: "https://example.org/app.git?private_token=canary"}},
		&PkgRepository{Spec: PkgRepositorySpec{URL: "https://ci:canary@example.org/charts?x=1&sig=canary"}},
		&PkgChart{Header: Header{Metadata: Metadata{Annotations: map[string]string{lastApplied: `{"spec":{"url":"https://ci:canary@example.org"}}`}}}},
	} {
		_, isBucket := obj.(*Bucket)
		if origin := OriginOf(obj); strings.Contains(origin, "canary") || isBucket && origin != "https://example.org/assets" {
			t.Errorf("the origin is %s", origin)
		}
		before, err := EncodeJSON(obj)
		if err != nil || !strings.Contains(string(before), "canary") {
			t.Fatalf("%v, %s", err, before)
		}
		if text, err := EncodeJSON(Masked(obj)); err != nil || strings.Contains(string(text), "canary") {
			t.Errorf("%v, %s", err, text)
		}
		if after, err := EncodeJSON(obj); err != nil || string(after) != string(before) {
			t.Errorf("the object itself is changed: %v, %s", err, after)
		}
	}
}
