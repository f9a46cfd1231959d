package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// archive returns a chart.
func archive(t testing.TB, name, version string) []byte {
	return testenv.ChartArchive(t, map[string]string{
		name + "/Chart.yaml":  fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version),
		name + "/values.yaml": "a: 1\n",
	})
}

// chartImage returns an artifact as helm push makes it.
func chartImage(data []byte, more ...testenv.Blob) testenv.Manifest {
	return testenv.Manifest{
		Config: &testenv.Blob{MediaType: configType, Data: []byte("{}")},
		Layers: append([]testenv.Blob{{MediaType: contentType, Data: data}}, more...),
	}
}

// newRegistry returns a bench for the charts below HOST/team, and pushes versions of app there.
func newRegistry(t *testing.T, g *testenv.Registry, versions ...string) (*bench, map[string]ocispec.Descriptor) {
	b := newBench(t, g.URL("team"), nil)
	b.repo.Spec.Type, b.repo.Spec.Insecure = source.RepositoryOCI, true
	pushed := map[string]ocispec.Descriptor{}
	for _, v := range versions {
		pushed[v] = g.Push("team/app", tagOf(v), chartImage(archive(t, "app", v)))
	}
	return b, pushed
}

func tagOf(version string) string {
	return string(bytes.ReplaceAll([]byte(version), []byte("+"), []byte("_")))
}

func TestRegistryFind(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	b, pushed := newRegistry(t, g, "0.1.0", "0.2.0", "1.0.0-rc.1", "v0.3.0", "0.1.5+a", "0.1.5+b")
	g.Push("team/app", "latest", chartImage(archive(t, "app", "9.0.0")))
	for want, version := range map[string]string{"": "v0.3.0", "*": "v0.3.0", "0.2.0": "0.2.0", "~0.1.0": "0.1.5+b", "0.1.5+a": "0.1.5+a", ">=0.0.0-0": "1.0.0-rc.1"} {
		o, got, err := b.get("app", want)
		if err != nil || o.version != version || o.identity != pushed[version].Digest.String() || !bytes.Equal(got, archive(t, "app", version)) {
			t.Errorf("%q: %+v, %v, want %s", want, o, err, version)
		}
	}
	g.Reset()
	if _, _, err := b.get("app", "0.1.5+a"); err != nil || g.Count(testenv.ListTags) != 0 || g.Count(testenv.HeadManifest) != 1 {
		t.Error(err, g.Count(testenv.ListTags), g.Count(testenv.HeadManifest))
	}
}

func TestRegistryFails(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	b, _ := newRegistry(t, g, "0.1.0")
	g.Push("team/app", "0.2.0", testenv.Manifest{Layers: []testenv.Blob{{MediaType: testenv.LayerTarGzip, Data: archive(t, "app", "0.2.0")}}})
	g.Push("team/app", "0.3.0", chartImage(archive(t, "app", "0.3.1")))
	g.Push("team/app", "0.4.0", chartImage([]byte("no chart")))
	g.Push("team/app", "0.5.0", testenv.Manifest{Config: &testenv.Blob{MediaType: configType, Data: []byte("{}")}})
	for _, row := range []struct {
		name, want string
		step       source.Step
		reason     string
		stalls     bool
		says       string
	}{
		{"app", "7.0.0", source.StepResolve, "ChartPullError", false, "team/app:7.0.0"},
		{"app", "7.x", source.StepResolve, "ChartPullError", false, `the newest are "0.5.0"`},
		{"app", "one", source.StepResolve, "InvalidChartReference", true, "is neither"},
		{"other", "*", source.StepResolve, "ChartPullError", false, "team/other"},
		{"app", "0.2.0", source.StepFetch, "ChartPullError", false, "it is no chart but of type"},
		{"app", "0.3.0", source.StepFetch, "ChartPullError", false, `holds chart "app" in version "0.3.1"`},
		{"app", "0.4.0", source.StepFetch, "ChartPullError", false, "layer sha256:"},
		{"app", "0.5.0", source.StepFetch, "ChartPullError", false, "no layer has the media type"},
	} {
		_, _, err := b.get(row.name, row.want)
		b.fails(err, row.step, row.reason, row.stalls, row.says)
		if missing := row.want == "7.0.0" || row.want == "7.x" || row.name == "other"; missing != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s %s: %v", row.name, row.want, err)
		}
	}
}

// The name of the chart is not part of the URL, where copied URLs have it.
func TestRegistryOfOneChart(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	newRegistry(t, g, "0.1.0")
	b := newBench(t, g.URL("team/app"), nil)
	b.repo.Spec.Type, b.repo.Spec.Insecure = source.RepositoryOCI, true
	_, _, err := b.get("app", "*")
	b.fails(err, source.StepResolve, "ChartPullError", false, "spec.url must not have the name of the chart at its end")
}

func TestRegistryCredentials(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "ann", Password: password})
	g.Break(nil)
	b, _ := newRegistry(t, g)
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepResolve, "AuthenticationFailed", false, "team/app")
	b.repo.Spec.SecretRef = ref("user")
	if _, _, err := b.get("app", "1.0.0"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	b.repo.Spec.SecretRef = ref("none")
	b.s.env.Secrets.(sourcetest.Secrets)["default/none"] = source.Secret{Data: map[string][]byte{"username": []byte("ann")}}
	_, _, err = b.get("app", "1.0.0")
	b.fails(err, source.StepResolve, "AuthenticationFailed", false, "secret default/none", "key password is missing")
}
