package chart

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// namedRepository returns a PkgRepository of the namespace, over HTTP in a registry without TLS.
func namedRepository(name, url, secret string) *source.PkgRepository {
	p := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: url, Insecure: true, Type: source.RepositoryOCI, Timeout: source.Duration(time.Minute)}}
	p.Metadata.Name, p.Metadata.Namespace = name, "default"
	if !strings.HasPrefix(url, "oci://") {
		p.Spec.Type, p.Spec.Insecure = "", false
	}
	if secret != "" {
		p.Spec.SecretRef = ref(secret)
	}
	return p
}

func TestNamed(t *testing.T) {
	b := newBench(t, "http://h", nil)
	for url, want := range map[string]string{"http://h/charts": "", "oci://h/charts": "oci", "http://h/charts/": ""} {
		p, err := b.s.named(t.Context(), url)
		if err != nil || p.Metadata.Name != "" || p.Spec.Type != want || p.Spec.Timeout != source.Duration(time.Minute) || p.Spec.SecretRef != nil {
			t.Errorf("%s: %+v, %v", url, p, err)
		}
	}
	b.s.env.Sources = objects{namedRepository("bad", "http://h/%zz", ""), namedRepository("other", "http://h/charts/other", ""), namedRepository("first", "HTTP://h/charts/", "user"),
		namedRepository("second", "http://h/charts", ""), namedRepository("registry", "oci://h/charts/", "user"), namedRepository("query", "http://h/charts?a=b", "")}
	b.s.env.Local = map[string]string{"http://local//charts": "/dir"}
	for url, want := range map[string]string{
		"http://h/charts": "first", "http://h//charts//": "first", "oci://h/charts": "registry", "http://h/charts?a=b": "query", "https://h/charts": "", "http://h:8080/charts": "", "http://h/chart": "",
		"http://local/charts/": "",
	} {
		p, err := b.s.named(t.Context(), url)
		if err != nil || p.Metadata.Name != want {
			t.Errorf("%s: %+v, %v, want %s", url, p, err, want)
		}
		if strings.Contains(url, "local") && b.s.env.Local[p.Spec.URL] == "" {
			t.Errorf("%s: no directory for %s", url, p.Spec.URL)
		}
	}
	if _, err := b.s.named(t.Context(), "http://u:cAnArY@h/%zz"); err == nil || strings.Contains(err.Error(), "cAnArY") {
		t.Error(err)
	}
}

// TestStandIn takes charts from a directory.
func TestStandIn(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(filepath.Dir(dir), "outside.tgz")
	data := archive(t, "app", "1.0.0")
	for name, where := range map[string]string{"app.tgz": dir, "sub/app.tgz": dir, "a b.tgz": dir, "outside.tgz": filepath.Dir(outside)} {
		file := filepath.Join(where, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Remove(outside)
	if err := os.Symlink(outside, filepath.Join(dir, "link.tgz")); err != nil {
		t.Fatal(err)
	}
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.PutFile("app.tgz", data)
	for url, says := range map[string]string{
		"app.tgz": "", "sub/app.tgz": "", "http://charts.example/stable/app.tgz": "", "a%20b.tgz": "", c.URLOf("app.tgz"): "",
		"%2e%2e/outside.tgz": "local directory", "link.tgz": "local directory", "missing.tgz": "local directory", "sub": "is no file", "app.tgz/x": "local directory",
	} {
		b := newBench(t, "http://charts.example/stable", nil)
		b.s.env.Local = map[string]string{"http://charts.example/stable": dir}
		b.text = []byte(fmt.Sprintf("apiVersion: v1\nentries:\n  app:\n  - {name: app, version: 1.0.0, urls: ['%s']}\n", url))
		_, got, err := b.get("app", "1.0.0")
		if says == "" && (err != nil || !bytes.Equal(got, data)) {
			t.Errorf("%s: %v", url, err)
		}
		if says != "" {
			b.fails(err, source.StepFetch, "ChartPullError", false, says)
		}
	}
}
