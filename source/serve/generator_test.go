package serve_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/generator"
	"github.com/headgate-io/headgate/source/serve"
)

// monorepoFiles returns the files web/a and api/a of a revision WEB@sha1:API.
func monorepoFiles(id string) fstest.MapFS {
	web, api, _ := strings.Cut(id, "@sha1:")
	return fstest.MapFS{"web/a": {Data: []byte(web)}, "api/a": {Data: []byte(api)}}
}

// Each artifact of a generator follows its sources, and is deleted with the generator.
func TestGenerator(t *testing.T) {
	const both = `  - {name: web, copy: [{from: "@mono/web/**", to: "@artifact/"}]}` + "\n" + `  - {name: api, copy: [{from: "@mono/api/**", to: "@artifact/"}]}` + "\n"
	const more = `  - {name: more, copy: [{from: "@mono/api/**", to: "@artifact/"}]}` + "\n"
	objects := func(annotations, artifacts string) []source.Object {
		set := new(source.Set)
		if err := set.Decode("", strings.NewReader("apiVersion: source.extensions.fluxcd.io/v1beta1\nkind: ArtifactGenerator\nmetadata: {name: app, annotations: {"+annotations+"}}\n"+
			"spec:\n  sources: [{alias: mono, kind: GitRepository, name: mono}]\n  artifacts:\n"+artifacts)); err != nil {
			t.Fatal(err)
		}
		return append(set.Objects, repo("mono", site, 24*time.Hour))
	}
	output := func(name string) source.Reference {
		return source.Reference{Kind: "ExternalArtifact", Namespace: "default", Name: name}
	}
	ran := func(r *fixture, want ...string) {
		r.Helper()
		got := strings.Split(describe(r.takeRuns()), ", ")
		got = slices.DeleteFunc(got, func(run string) bool { return strings.HasPrefix(run, "app ") }) // the number of runs of the generator does not matter
		if slices.Sort(got); !slices.Equal(got, want) {
			r.Errorf("ran %q, want %q", got, want)
		}
	}
	push := func(r *fixture, rev string) {
		r.upstream(site).set(func(u *upstream) { u.rev = rev })
		r.Request(repoRef("mono"), serve.Hook)
	}
	withFixture(t, nil, func(r *fixture) {
		r.Retention = time.Hour
		r.Config.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
			switch obj := obj.(type) {
			case *source.ArtifactGenerator:
				return generator.NewSummary(obj, env), nil
			case *source.ExternalArtifact:
				return generator.New(obj, env), nil
			}
			o, err := r.origin(obj, env)
			return archiveOrigin{o, monorepoFiles}, err
		}
	}, func(r *fixture) {
		push(r, "one@sha1:1")
		r.put(objects("", both)...)
		ran(r, "api start stored", "mono start stored", "web start stored")
		push(r, "two@sha1:1")
		ran(r, "api input unchanged", "mono hook stored", "web input stored")
		push(r, "two@sha1:2")
		ran(r, "api input stored", "mono hook stored", "web input unchanged")
		app := source.Reference{Kind: "ArtifactGenerator", Namespace: "default", Name: "app"}
		v, err := r.View(app)
		g, _ := v.Object.(*source.ArtifactGenerator)
		if err != nil || len(g.Status.Inventory) != 2 || g.Common().Condition(source.ReadyCondition).Status != "True" || v.Phase != serve.Idle || v.Next.IsZero() {
			t.Errorf("%+v, %v", v, err)
		}
		r.restart(nil)
		ran(r, "api input unchanged", "web input unchanged")

		r.put(objects("source.extensions.fluxcd.io/reconcile: disabled", both)...)
		push(r, "three@sha1:2")
		ran(r, "mono hook stored")
		r.put(objects("", both)...)
		ran(r, "api spec unchanged", "web spec stored")
		r.put(objects(`reconcile.fluxcd.io/requestedAt: "1"`, both)...)
		ran(r, "api request unchanged", "web request unchanged")

		r.must(r.Suspend(app, source.Suspension{By: "anna"})) // suspends its outputs as well
		push(r, "four@sha1:2")
		ran(r, "mono hook stored")
		if v, err := r.View(output("web")); err != nil || v.Phase != serve.Suspended || v.Suspension.By != "anna" {
			t.Errorf("%+v, %v", v, err)
		}
		r.put(objects("", both+more)...) // a new output of a suspended generator is suspended
		r.restart(nil)
		ran(r, "")
		if v, err := r.View(output("more")); err != nil || v.Phase != serve.Suspended || v.Suspension.By != "anna" {
			t.Errorf("%+v, %v", v, err)
		}
		r.must(r.Resume(app))
		ran(r, "api request unchanged", "more request stored", "web request stored")
		r.put(objects("", both)...)
		r.takeRuns()
		r.must(r.Suspend(app, source.Suspension{By: "anna"}))
		r.put(objects("source.extensions.fluxcd.io/reconcile: disabled", both)...)
		if err := r.Resume(app); !errors.Is(err, serve.ErrSuspended) {
			t.Errorf("%v", err)
		}
		r.put(objects("", both)...) // the command no longer suspends either output
		ran(r, "api spec unchanged", "web spec unchanged")
		_, err = r.Request(app, serve.Request)
		r.must(err)
		ran(r, "api request unchanged", "web request unchanged")

		r.put(objects("", strings.Replace(both, "web/**", "api/**", 1))...) // another composition
		ran(r, "web spec stored")
		r.put(objects("", strings.Split(both, "\n")[0]+"\n")...) // the generator no longer lists one artifact
		ran(r, "web spec stored")
		if v, err := r.View(output("api")); err != nil || v.Phase != serve.Removed {
			t.Errorf("%+v, %v", v, err)
		}
		time.Sleep(2 * time.Hour)
		r.takeRuns()
		if _, err := r.View(output("api")); err == nil {
			t.Error("it is not gone")
		}
		r.put(repo("mono", site, 24*time.Hour)) // the generator itself is removed
		time.Sleep(2 * time.Hour)
		r.takeRuns()
		for a, err := range r.Store.All() {
			if err != nil || strings.HasPrefix(a.Path, "externalartifact/") {
				t.Errorf("%s is stored, %v", a.Path, err)
			}
		}
	})
}

// A generator takes over an artifact that another program publishes, and the other program takes it back.
func TestGeneratorTakesOver(t *testing.T) {
	external := &source.ExternalArtifact{Header: source.Header{APIVersion: source.ReferenceGroup + "/v1", Kind: "ExternalArtifact", Metadata: source.Metadata{Name: "web", Namespace: "default"}}}
	external.Status.Artifact = &artifact.Artifact{Path: "a", URL: "http://localhost/a", Revision: "1", Digest: "sha256:" + strings.Repeat("1", 64)}
	composed := &source.ArtifactGenerator{Spec: source.ArtifactGeneratorSpec{Sources: []source.GeneratorSource{{Alias: "mono", Kind: "GitRepository", Name: "mono"}},
		Artifacts: []source.OutputArtifact{{Name: "web", Copy: []source.CopyOperation{{From: "@mono/**", To: "@artifact/"}}}}}}
	composed.Metadata.Name = "app"
	withFixture(t, list(external, repo("mono", site, time.Hour)), func(r *fixture) {
		r.Config.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
			if e, ok := obj.(*source.ExternalArtifact); ok {
				return generator.New(e, env), nil
			}
			o, err := r.origin(obj, env)
			return archiveOrigin{o, monorepoFiles}, err
		}
	}, func(r *fixture) {
		r.put(composed.Outputs()[0], repo("mono", site, time.Hour))
		r.wantRuns("web spec stored")
		r.put(external, repo("mono", site, time.Hour))
		time.Sleep(3 * time.Hour)
		if got := describe(r.takeRuns()); strings.Contains(got, "web") {
			r.Errorf("ran %s", got)
		}
	})
}
