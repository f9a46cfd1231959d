package e2e

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/moby/buildkit/solver/pb"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
)

// images resolves every image to an empty one that runs as root.
type images struct{}

func (images) ResolveImageConfig(_ context.Context, ref string, opt sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config, err := json.Marshal(ocispecs.Image{Platform: *opt.ImageOpt.Platform})
	return ref, digest.FromBytes(config), config, err
}

// TestRecipes checks that Docker's own front end reads the image recipes without warnings. An image
// of release binaries must run no commands and copy nothing else from the build context. An image
// of the source must compile for the target platform.
func TestRecipes(t *testing.T) {
	t.Parallel()
	for _, r := range []struct{ file, target, binary string }{
		{"docs/deploy/Dockerfile", "headgate", "headgate"}, {"docs/deploy/Dockerfile", "tester", "headgate"},
		{"kubernetes/Containerfile", "", "headgate-controller"},
	} {
		text, err := os.ReadFile("../" + r.file)
		must(t, err)
		for _, binary := range []string{"build", "release"} {
			if r.target == "tester" && binary == "release" {
				continue // releases do not include it
			}
			config := dockerui.Config{Target: r.target, BuildArgs: map[string]string{"BINARY": binary}, BuildPlatforms: []ocispecs.Platform{{OS: "linux", Architecture: "amd64"}}}
			platform := &ocispecs.Platform{OS: "linux", Architecture: "arm64"}
			option := dockerfile2llb.ConvertOpt{Config: config, TargetPlatform: platform, MetaResolver: images{}}
			option.Warn = func(rule, _, _, message string, at []parser.Range) {
				t.Errorf("%s: %v: %s: %s", r.file, at, rule, message)
			}
			made, err := dockerfile2llb.Dockerfile2LLB(t.Context(), text, option)
			must(t, err)
			testenv.Equal(t, made.Image.Config.User, "65532:65532", r.file)
			definition, err := made.State.Marshal(t.Context(), llb.Platform(*platform))
			must(t, err)
			var runs, copies []string
			for _, data := range definition.Def {
				var op pb.Op
				must(t, op.UnmarshalVT(data))
				if exec := op.GetExec(); exec != nil {
					runs = append(runs, strings.Join(exec.Meta.Args, " "))
				}
				for _, action := range op.GetFile().GetActions() {
					if copied := action.GetCopy(); copied != nil {
						copies = append(copies, copied.Src+" "+copied.Dest)
					}
				}
			}
			if binary == "release" {
				if len(runs) > 0 || !slices.Contains(copies, "/linux/arm64/"+r.binary+" /"+r.binary) {
					t.Errorf("%s of a release runs %q and copies %q", r.file, runs, copies)
				}
			} else if !slices.ContainsFunc(runs, func(run string) bool { return strings.Contains(run, "go build") }) {
				t.Errorf("%s compiles nothing: %q", r.file, runs)
			}
		}
	}
}
