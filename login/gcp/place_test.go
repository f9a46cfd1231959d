package gcp

import (
	"net/url"
	"strings"
	"testing"
)

func TestUniverses(t *testing.T) {
	for u, want := range map[string]string{
		"oci://gcr.io/project/app":                                  googleCloud,
		"oci://eu.gcr.io/project/app":                               googleCloud,
		"oci://EU.GCR.io:443/project/app":                           googleCloud,
		"oci://europe-west1-docker.pkg.dev/project/repo/app":        googleCloud,
		"oci://us-docker.pkg.dev/project/repo/app":                  googleCloud,
		"oci://docker.s3nsregistry.fr/project/repo/app":             s3nsCloud,
		"oci://u-france-east1-docker.s3nsregistry.fr/project/r/app": s3nsCloud,
		"gs://storage.googleapis.com/bucket":                        googleCloud,
		"gs://Storage.GoogleAPIs.com:443/bucket":                    googleCloud,
		"gs://storage.me-central2.rep.googleapis.com/bucket":        googleCloud,
		"gs://storage-own.p.googleapis.com/bucket":                  googleCloud,
		"gs://storage.s3nsapis.fr/bucket":                           s3nsCloud,
	} {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := placeOf(parsed); got.universe != want || err != nil {
			t.Errorf("%s: %s, %v", u, got, err)
		}
	}
}

// strangers are hosts that look like those of Google Cloud.
var strangers = []string{
	"oci://evil.com/gcr.io",
	"oci://xgcr.io/app",
	"oci://gcr.io.evil.com/app",
	"oci://eu.gcr.io.evil.com/app",
	"oci://a.b.gcr.io/app",
	"oci://-.gcr.io/app",
	"oci://.gcr.io/app",
	"oci://gcr.io:8443/app",
	"oci://gcr.io:/app",
	"oci://gcr.io./app",
	"oci://gcr.io@evil.com/app",
	"oci://oauth2accesstoken@gcr.io/app",
	"oci://gcrxio/app",
	"oci://foo-docker.pkg.dev.evil/app",
	"oci://foo-docker.pkg.dev.evil.com/app",
	"oci://foo-docker.evil.pkg.dev/app",
	"oci://evil.com-docker.pkg.dev/app",
	"oci://evil-dockerxpkgxdev/app",
	"oci://-docker.pkg.dev/app",
	"oci://docker.pkg.dev/app",
	"oci://us-npm.pkg.dev/app",
	"oci://us-docker.pkg.dev:80/app",
	"oci://us-doc\u212aer.pkg.dev/app",
	"oci://s3nsregistry.fr/app",
	"oci://xdocker.s3nsregistry.fr/app",
	"oci://evil.docker.s3nsregistry.fr/app",
	"oci://docker.s3nsregistry.fr.evil.com/app",
	"https://gcr.io/app",
	"gs://gcr.io/app",
	"gs://us-docker.pkg.dev/app",
	"oci://storage.googleapis.com/bucket",
	"https://storage.googleapis.com/bucket",
	"gs://googleapis.com/bucket",
	"gs://xstorage.googleapis.com/bucket",
	"gs://storage.googleapis.com.evil.com/bucket",
	"gs://storage.googleapis.com:80/bucket",
	"gs://user@storage.googleapis.com/bucket",
	"gs://storagexgoogleapis.com/bucket",
	"gs://bucket.storage.googleapis.com/",
	"gs://storage.a.b.rep.googleapis.com/bucket",
	"gs://storage.rep.googleapis.com/bucket",
	"gs://storage-.p.googleapis.com/bucket",
	"gs://evil-storage-own.p.googleapis.com/bucket",
	"gs://storage.evil.s3nsapis.fr/bucket",
	"http://us-docker.pkg.dev/app",
	"oci:gcr.io/app",
	"gcr.io/app",
	"",
}

func TestStrangers(t *testing.T) {
	for _, s := range strangers {
		u, err := url.Parse(s)
		if err != nil {
			continue // no URL reaches a login that is none
		}
		if at, err := placeOf(u); err == nil {
			t.Errorf("%s is taken for one of %s", s, at.universe)
		}
	}
}

// FuzzUniverse checks that a token goes to hosts of the clouds only, which are
// what a client would connect to.
func FuzzUniverse(f *testing.F) {
	for _, s := range strangers {
		f.Add(s)
	}
	f.Add("oci://eu.gcr.io/app")
	f.Add("oci://us-docker.pkg.dev/app")
	f.Add("oci://docker.s3nsregistry.fr/app")
	f.Add("gs://storage.googleapis.com/b")
	f.Add("gs://storage.a.rep.googleapis.com/b")
	f.Add("gs://storage-a.p.googleapis.com/b")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		at, err := placeOf(u)
		if err != nil {
			return
		}
		host := strings.ToLower(strings.TrimSuffix(u.Host, ":443"))
		name, domain, _ := strings.Cut(host, ".")
		good := host == "gcr.io" || domain == "gcr.io" || domain == "pkg.dev" && strings.HasSuffix(name, "-docker") ||
			domain == "s3nsregistry.fr" && (name == "docker" || strings.HasSuffix(name, "-docker"))
		if u.Scheme == "gs" {
			_, regional := strings.CutSuffix(domain, ".rep.googleapis.com")
			good = name == "storage" && (domain == "googleapis.com" || domain == "s3nsapis.fr" || regional) ||
				strings.HasPrefix(name, "storage-") && domain == "p.googleapis.com"
		}
		if !good || u.User != nil || at.bucket != (u.Scheme == "gs") || !at.bucket && u.Scheme != "oci" ||
			strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || (at.universe == s3nsCloud) != strings.HasSuffix(host, ".fr") {
			t.Errorf("%q is taken for one of %s", s, at.universe)
		}
	})
}
