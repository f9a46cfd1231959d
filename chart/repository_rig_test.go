package chart_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A repoRig reconciles PkgRepository objects with a real store and a real ledger.
type repoRig struct {
	*testing.T
	*sourcetest.Rig
	s       *testenv.Charts
	secrets sourcetest.Secrets
	limits  artifact.Limits
	local   map[string]string
	spools  []*os.File // that were created
}

func newRepoRig(t *testing.T, c testenv.ChartsConfig) *repoRig {
	t.Helper()
	r := &repoRig{T: t, s: testenv.StartCharts(t, c), secrets: newRepoSecrets(c.CA)}
	r.Rig = sourcetest.NewRig(t, func() []string { return repoSecretForms })
	r.limits.Temp = func() (*os.File, error) {
		f, err := r.Store.Temp()
		r.spools = append(r.spools, f)
		return f, err
	}
	t.Cleanup(r.noSpools)
	return r
}

// noSpools demands that all spools are closed, with which they disappear.
func (r *repoRig) noSpools() {
	for _, f := range r.spools {
		if _, err := f.Stat(); err == nil {
			r.Errorf("spool %s is open", f.Name())
		}
	}
}

// object returns an object of the given name.
func (r *repoRig) object(edit func(*source.PkgRepositorySpec)) *source.PkgRepository {
	obj := repoObject(r.s)
	if edit != nil {
		edit(&obj.Spec)
	}
	return obj
}

func (r *repoRig) origin(obj *source.PkgRepository) *chart.Repository {
	return chart.NewRepository(obj, source.Env{Secrets: r.secrets, Limits: r.limits, Local: r.local})
}

// run reconciles obj and demands an outcome.
func (r *repoRig) run(obj *source.PkgRepository, want source.Outcome) source.Result {
	r.Helper()
	result, err := r.Reconcile(obj, r.origin(obj))
	if result.Outcome != want || (err != nil) != (want == source.Failed || want == source.Stalled) {
		r.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, want)
	}
	r.noSpools()
	return result
}

// refused reconciles obj and demands an error that says all of says, and that nothing is stored.
func (r *repoRig) refused(obj *source.PkgRepository, reason string, says ...string) source.Result {
	r.Helper()
	result := r.Refused(obj, r.origin(obj), obj.Artifact(), reason, says...)
	r.noSpools()
	return result
}

// bytes returns an artifact as it is stored, whose revision, digest and name must be its own.
func (r *repoRig) bytes(a *artifact.Artifact) []byte {
	r.Helper()
	in, err := r.Store.Open(*a)
	if err != nil {
		r.Fatal(err)
	}
	defer in.Close()
	data, err := io.ReadAll(in)
	if err != nil {
		r.Fatal(err)
	}
	sum := sha256.Sum256(data)
	id := hex.EncodeToString(sum[:])
	if a.Revision != "sha256:"+id || a.Digest != a.Revision || !strings.HasSuffix(a.Path, "/index-"+id+".yaml") || a.Size != int64(len(data)) {
		r.Errorf("artifact %+v of %d bytes whose SHA-256 is %s", a, len(data), id)
	}
	return data
}

// lose removes the file of an artifact.
func (r *repoRig) lose(a *artifact.Artifact) {
	r.Helper()
	if err := os.Remove(filepath.Join(r.Dir, filepath.FromSlash(a.Path))); err != nil {
		r.Fatal(err)
	}
}

// statuses returns those of the answers since the last call.
func (r *repoRig) statuses() (all []int) {
	for _, q := range r.s.Requests() {
		all = append(all, q.Status)
	}
	r.s.Reset()
	return all
}

// asked demands the statuses of the answers since the last call.
func (r *repoRig) asked(want ...int) {
	r.Helper()
	if got := r.statuses(); !slices.Equal(got, want) {
		r.Errorf("the answers had the statuses %v, want %v", got, want)
	}
}
