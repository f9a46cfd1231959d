package git_test

import (
	"fmt"
	"maps"
	"path"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// part is a remote of whose trees an object follows one directory, beside much
// that it leaves out.
type part struct {
	*remote
	dir    string // "" is the root
	sparse []string
	ignore string
}

func (p *part) Publish(tree fstest.MapFS) error {
	all := fstest.MapFS{}
	for name, file := range tree {
		if p.dir != "" {
			name = p.dir + "/" + name
		}
		all[name] = file
	}
	beside := fstest.MapFS{}
	for i := range 3 + 2*len(tree) {
		beside[fmt.Sprintf("beside/%d/file", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "beside %d of %d", i, len(tree)), Mode: 0o644}
	}
	maps.Copy(all, beside)
	return p.remote.Publish(all)
}

func (p *part) Object() source.Object {
	g := p.remote.Object().(*source.GitRepository)
	g.Spec.SparseCheckout = p.sparse
	if p.ignore != "" {
		g.Spec.Ignore = &p.ignore
	}
	switch p.defect {
	case "absent directory":
		g.Spec.SparseCheckout = []string{path.Join(p.dir, "absent")}
	case "file in place of a directory":
		g.Spec.SparseCheckout = []string{"beside/0/file"}
	case "hostile directory":
		g.Spec.SparseCheckout = []string{"../../etc"}
	}
	return g
}

// The suite holds for what a partial fetch brings.
func TestConformanceInPart(t *testing.T) {
	for name, c := range map[string]struct {
		config testenv.HTTP
		part   part
	}{
		"sparse":             {testenv.HTTP{}, part{dir: "in/here", sparse: []string{"./in/here/"}}},
		"ignored, version 0": {testenv.HTTP{V0: true}, part{ignore: "/beside/\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := c.config
			config.Username, config.Password = "user", password
			kind := conforming(func(tb sourcetest.TB) sourcetest.Upstream {
				repo := testenv.NewRepo(t)
				up := c.part
				up.remote = &remote{t: tb, repo: repo, server: testenv.ServeHTTP(t, config, repo),
					ref: source.GitRepositoryRef{Branch: "main"}, mode: source.VerifyHEAD, signer: newSSHSigner(t)}
				return &up
			})
			kind.Under = c.part.dir
			kind.Failures = append(kind.Failures,
				sourcetest.Failure{Defect: "absent directory", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: `spec.sparseCheckout[0]: directory "`},
				sourcetest.Failure{Defect: "file in place of a directory", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "is a file"},
				sourcetest.Failure{Defect: "hostile directory", Outcome: source.Stalled, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "spec.sparseCheckout[0]: must not"})
			if c.part.ignore != "" { // which counts from the first run on
				kind.Drift = func(obj source.Object) {
					ignore := c.part.ignore + "/nothing-of-that-name\n"
					obj.(*source.GitRepository).Spec.Ignore = &ignore
				}
			}
			sourcetest.Run(t, kind)
		})
	}
}
