package git_test

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// part is a remote of whose trees an object follows one directory, beside much
// that it leaves out.
type part struct{ *remote }

const inPart = "in/here"

func (p *part) Publish(tree fstest.MapFS) error {
	all := fstest.MapFS{}
	for name, file := range tree {
		all[inPart+"/"+name] = file
	}
	for i := range 3 + 2*len(tree) {
		all[fmt.Sprintf("beside/%d/file", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "beside %d of %d", i, len(tree)), Mode: 0o644}
	}
	return p.remote.Publish(all)
}

func (p *part) Object() source.Object {
	g := p.remote.Object().(*source.GitRepository)
	g.Spec.SparseCheckout = []string{"./" + inPart + "/"}
	switch p.defect {
	case "absent directory":
		g.Spec.SparseCheckout = []string{inPart + "/absent"}
	case "file in place of a directory":
		g.Spec.SparseCheckout = []string{"beside/0/file"}
	case "hostile directory":
		g.Spec.SparseCheckout = []string{"../../etc"}
	}
	return g
}

// The suite holds for what a partial fetch brings.
func TestConformanceInPart(t *testing.T) {
	t.Parallel()
	kind := conforming(func(tb sourcetest.TB) sourcetest.Upstream {
		repo := testenv.NewRepo(t)
		server := testenv.ServeHTTP(t, testenv.HTTP{Username: "user", Password: password}, repo)
		return &part{&remote{t: tb, repo: repo, server: server,
			ref: source.GitRepositoryRef{Branch: "main"}, mode: source.VerifyHEAD, signer: newSSHSigner(t)}}
	})
	kind.Under = inPart
	kind.Failures = append(kind.Failures,
		sourcetest.Failure{Defect: "absent directory", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: `spec.sparseCheckout[0]: directory "`},
		sourcetest.Failure{Defect: "file in place of a directory", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "is a file"},
		sourcetest.Failure{Defect: "hostile directory", Outcome: source.Stalled, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "spec.sparseCheckout[0]: must not"})
	sourcetest.Run(t, kind)
}
