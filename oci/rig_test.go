package oci_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A rig reconciles OCIRepository objects with a real store and a real ledger.
type rig struct {
	*testing.T
	g       *testenv.Registry
	dir     string // of the store
	store   *artifact.Store
	ledger  *source.Ledger
	secrets kept
	limits  artifact.Limits
	now     time.Time
	events  []source.Event            // of the last run
	verify  map[string]oci.Technology // nil: technologies
	local   map[string]string         // directories that stand in for URLs
}

func newRig(t *testing.T, c testenv.RegistryConfig) *rig {
	t.Helper()
	r := &rig{T: t, g: testenv.StartRegistry(t, c), dir: filepath.Join(t.TempDir(), "store"),
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var err error
	config := artifact.StoreConfig{Dir: r.dir, BaseURL: "http://store.example", Now: func() time.Time { return r.now }}
	if r.store, err = artifact.OpenStore(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.store.Close() })
	r.ledger = &source.Ledger{Dir: filepath.Join(t.TempDir(), "ledger")}
	r.limits.Temp = r.store.Temp
	r.secrets = kept{"default/login": login(r.g.Host, canary), "default/keys": signer().public()}
	if c.CA != nil {
		r.secrets["default/tls"] = source.Secret{Data: map[string][]byte{"ca.crt": c.CA.PEM()}}
	}
	return r
}

// object returns an object of the given name with credentials for the registry.
func (r *rig) object(name string, edit func(*source.OCIRepositorySpec)) *source.OCIRepository {
	obj := repository(r.g)
	obj.Metadata.Name = name
	obj.Spec.SecretRef = &source.LocalReference{Name: "login"}
	if !obj.Spec.Insecure {
		obj.Spec.CertSecretRef = &source.LocalReference{Name: "tls"}
	}
	if edit != nil {
		edit(&obj.Spec)
	}
	return obj
}

// reconcile runs the reconciler once. No run leaves goroutines behind, or shows a secret.
func (r *rig) reconcile(obj *source.OCIRepository) (result source.Result, err error) {
	r.Helper()
	r.events = nil
	reconciler := source.Reconciler{
		Store: r.store, Load: r.ledger.Load, Save: r.ledger.Save, Now: func() time.Time { return r.now },
		Emit: func(e source.Event) { r.events = append(r.events, e) },
	}
	sourcetest.NoLeaks(r.T, func(ctx context.Context) {
		result, err = reconciler.Reconcile(ctx, obj, r.origin(obj))
	})
	r.noSecrets(obj, err)
	return result, err
}

func (r *rig) origin(obj *source.OCIRepository) *oci.Origin {
	verify := r.verify
	if verify == nil {
		verify = technologies
	}
	return oci.New(obj, source.Env{Secrets: r.secrets, Limits: r.limits, Local: r.local}, verify)
}

// secretForms are the canary as it may come to show.
var secretForms = []string{canary, url.QueryEscape(canary), url.PathEscape(canary), base64.StdEncoding.EncodeToString([]byte("user:" + canary))}

// noSecrets checks that no text of the last run shows a credential or a control character.
func (r *rig) noSecrets(obj *source.OCIRepository, failed error) {
	r.Helper()
	texts := []string{r.json(obj.Status), r.json(r.events)}
	if failed != nil {
		texts = append(texts, failed.Error())
		if strings.ContainsFunc(failed.Error(), func(c rune) bool { return c < ' ' || c == 0x7f }) {
			r.Errorf("error with control characters: %q", failed)
		}
	}
	for _, text := range texts {
		for _, secret := range append(r.g.Tokens(), secretForms...) {
			if at := strings.Index(text, secret); at >= 0 {
				r.Errorf("a secret shows: …%s", text[max(0, at-80):at+len(secret)])
			}
		}
	}
}

func (r *rig) json(v any) string {
	r.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// stored reconciles obj and demands a new artifact.
func (r *rig) stored(obj *source.OCIRepository) {
	r.Helper()
	if result, err := r.reconcile(obj); result.Outcome != source.Stored || err != nil {
		r.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, source.Stored)
	}
}

// refused reconciles obj, which has no artifact or the one that goes by before,
// and demands that it stays so, and an error that says all of says.
func (r *rig) refused(obj *source.OCIRepository, before *artifact.Artifact, reason string, says ...string) source.Result {
	r.Helper()
	files := r.files()
	result, err := r.reconcile(obj)
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || result.Outcome != source.Failed && result.Outcome != source.Stalled || step.Reason != reason {
		r.Fatalf("outcome %q, error %v (%+v); want a failure with reason %s", result.Outcome, err, step, reason)
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			r.Errorf("error %q lacks %q", err, part)
		}
	}
	if len(err.Error()) > 4<<10 {
		r.Errorf("the error has %d bytes", len(err.Error()))
	}
	if now := r.files(); !slices.Equal(files, now) {
		r.Errorf("the store held %v, now %v", files, now)
	}
	switch now := obj.Artifact(); {
	case before == nil && now != nil:
		r.Errorf("artifact %+v", now)
	case before != nil && (now == nil || r.json(now) != r.json(before)):
		r.Errorf("the artifact was %+v, is %+v", before, now)
	case before != nil:
		if err := r.store.Check(*before); err != nil {
			r.Errorf("the artifact is no longer good: %v", err)
		}
	}
	return result
}

// files lists all that lies in the store, temporary files included, locks aside.
func (r *rig) files() (list []string) {
	r.Helper()
	err := fs.WalkDir(os.DirFS(r.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(d.Name(), "lock") {
			list = append(list, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Fatal(err)
	}
	return list
}

// names lists the files of an artifact.
func (r *rig) names(a *artifact.Artifact) (list []string) {
	r.Helper()
	in, err := r.store.Open(*a)
	if err != nil {
		r.Fatal(err)
	}
	defer in.Close()
	tree, err := artifact.Read(in, artifact.Limits{})
	if err != nil {
		r.Fatal(err)
	}
	defer tree.Close()
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, name)
		}
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return list
}

// push publishes layers as team/app:latest.
func (r *rig) push(layers ...testenv.Blob) {
	r.Helper()
	r.g.Push("team/app", "latest", testenv.Manifest{Layers: layers})
}

// text returns a tree of one file.
func text(name, content string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte(content), Mode: 0o644}}
}
