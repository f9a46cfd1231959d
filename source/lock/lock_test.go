package lock_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

// digest returns the digest of the spec of a document.
func digest(t *testing.T, document string) string {
	t.Helper()
	set := new(source.Set)
	testenv.Must(t, set.Decode("test.yaml", strings.NewReader(document)))
	sum, err := lock.SpecDigest(set.Objects[0])
	testenv.Must(t, err)
	return sum
}

// Documents that request the same content have the same digest, others a different one.
func TestSpecDigest(t *testing.T) {
	const (
		git   = "apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: https://example.org/app.git, interval: 5m"
		chart = "kind: %s\nmetadata: {name: web}\nspec: {chart: web, interval: 5m, sourceRef: {kind: %s, name: charts}"
	)
	for name, documents := range map[string][]string{
		"git": {
			git + "}",
			git + ", timeout: 20s, suspend: true, provider: generic, secretRef: {name: login}, proxySecretRef: {name: proxy}, ref: {}}",
			git + ", submoduleCredentials: [{url: https://example.com, secretRef: {name: other}}]}",
			"apiVersion: source.toolkit.fluxcd.io/v1beta2\nkind: GitRepository\nmetadata: {name: app, labels: {a: b}}\nspec:\n  interval: 1h\n  url: https://example.org/app.git\n",
		},
		"branch":  {git + ", ref: {branch: main}}"},
		"ignore":  {git + ", ignore: '*.md'}"},
		"verify":  {git + ", verify: {mode: HEAD, secretRef: {name: keys}}}", git + ", verify: {secretRef: {name: others}}}"},
		"tag":     {git + ", verify: {mode: Tag, secretRef: {name: keys}}}"},
		"include": {git + ", include: [{repository: {name: lib}}]}"},
		"chart": {
			"apiVersion: source.headgate.dev/v1\n" + strings.NewReplacer("%s\nm", "PkgChart\nm", "%s,", "PkgRepository,").Replace(chart) + "}",
			"apiVersion: source.toolkit.fluxcd.io/v1\n" + strings.NewReplacer("%s\nm", "HelmChart\nm", "%s,", "HelmRepository,").Replace(chart) + ", version: '*', reconcileStrategy: ChartVersion}",
			"apiVersion: source.toolkit.fluxcd.io/v1\n" + strings.NewReplacer("%s\nm", "HelmChart\nm", "%s,", "HelmRepository, apiVersion: source.toolkit.fluxcd.io/v1,").Replace(chart) + "}",
			"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web}\nspec: {interval: 1m, chart: {spec: {chart: web, sourceRef: {kind: HelmRepository, name: charts}}}}",
		},
	} {
		for i, document := range documents {
			testenv.Equal(t, digest(t, document), digest(t, documents[0]), "%s %d", name, i)
		}
		if first := digest(t, documents[0]); name != "git" && first == digest(t, git+"}") {
			t.Errorf("%s has the digest of git", name)
		}
	}
	// the password must make no difference
	with := func(password string) string {
		return strings.Replace(git, "https://", "https://ci:"+password+"@", 1) + "}"
	}
	testenv.Equal(t, digest(t, with("s3cret")), digest(t, with("another")), "digests with different passwords")
	// the digest is that of {"ref":{"branch":"main"},"url":"https://example.org/app.git"}
	testenv.Equal(t, digest(t, git+", ref: {branch: main}}"), "sha256:5061024156dd2fcd675b478764daab382723df2eacffeefa092f1d80774e388f")
}

// A lock reads back as written, and errors name its defects.
func TestRead(t *testing.T) {
	const sum = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	entries := lock.Entries{
		{Kind: "PkgChart", Namespace: "default", Name: "web"}: {SpecDigest: sum, Digest: sum, Inputs: []string{"PkgRepository/default/charts"}, Pin: source.Pin{
			Revision: "1.2.3", Chart: &source.ChartPin{Version: "1.2.3", URL: "https://charts.example.org/web-1.2.3.tgz", Digest: sum},
			Dependencies: []source.ChartPin{{Name: "dep", Range: "^1", Repository: "oci://example.org/charts", Version: "1.0.0", URL: "oci://example.org/charts/dep:1.0.0", Digest: sum}}}},
		{Kind: "GitRepository", Namespace: "default", Name: "app"}: {SpecDigest: sum, Content: sum, Pin: source.Pin{Revision: "v1@sha1:" + strings.Repeat("1", 40), Tag: strings.Repeat("2", 40)}},
	}
	text, err := entries.Encode()
	testenv.Must(t, err)
	again, err := lock.Read(strings.NewReader(string(text)))
	testenv.Must(t, err)
	for ref, entry := range entries {
		if !again[ref].Equal(entry) {
			t.Errorf("%s: %+v, want %+v", ref, again[ref], entry)
		}
	}
	if len(again) != len(entries) || strings.Index(string(text), "GitRepository") > strings.Index(string(text), "PkgChart") {
		t.Errorf("%d entries of\n%s", len(again), text)
	}
	valid := "version: 1\nobjects:\n  GitRepository/default/app:\n    specDigest: " + sum + "\n    content: " + sum + "\n    revision: main@sha1:1\n"
	for _, bad := range []struct{ text, want string }{
		{"", "version 0"},
		{"version: 2", "version 2"},
		{"version: 1\nobjects: []", "cannot unmarshal"},
		{strings.Replace(valid, "content", "contents", 1), "field contents not found"},
		{strings.Replace(valid, "default/", "", 1), "want KIND/NAMESPACE/NAME"},
		{strings.Replace(valid, "GitRepository", "Other", 1), "unknown kind"},
		{valid + valid[len("version: 1\nobjects:\n"):], "already defined"},
		{valid + strings.Replace(valid[len("version: 1\nobjects:\n"):], "GitR", "gitr", 1), "two entries"},
		{strings.Replace(valid, "    content: "+sum+"\n", "", 1), "want one of content and digest"},
		{strings.Replace(valid, "content: sha256:4", "content: sha256:", 1), "content: digest"},
		{valid + "    chart: {version: 1.0.0, url: x, digest: y}\n", "digest of chart 1.0.0"},
		{valid + "<<<<<<< HEAD\n", "merge that was not finished"},
		{strings.Repeat("# long\n", 16<<20/7+1), "more than 16777216 bytes"},
	} {
		if _, err := lock.Read(strings.NewReader(bad.text)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%.200s: %v, want %s", bad.text, err, bad.want)
		}
	}
}
