package chart_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// hurry makes the timeout of the source short, until it is mended.
func hurry(up sourcetest.Upstream) { up.(*depot).timeout(250 * time.Millisecond) }

// conforming describes charts whose upstreams are depots.
func conforming(t *testing.T, said string, open func(*testing.T) *depot, edit func(*sourcetest.Kind)) {
	k := sourcetest.Kind{
		Name: "PkgChart", Under: under, Said: said, Hurry: hurry,
		Open:   func(sourcetest.TB) sourcetest.Upstream { return open(t) },
		Drift:  func(obj source.Object) { obj.(*source.PkgChart).Spec.ValuesFiles = []string{"values.yaml"} },
		Stalls: []sourcetest.Defect{sourcetest.StallFetch},
	}
	edit(&k)
	sourcetest.Run(t, k)
}

func stalls(d sourcetest.Defect, condition, reason, message string) sourcetest.Failure {
	return sourcetest.Failure{Defect: d, Outcome: source.Stalled, Condition: condition, Reason: reason, Message: message}
}

func TestConformanceOfCharts(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *depot { return inTree(t, new(source.GitRepository), false) }
		conforming(t, "ChartPackageSucceeded", open, func(k *sourcetest.Kind) {
			k.ReadsContent = true
			k.Failures = []sourcetest.Failure{
				stalls(sourcetest.Gone, "FetchFailed", "InvalidChartReference", "elsewhere"),
				stalls(sourcetest.Invalid, "BuildFailed", "ValuesFilesError", "must not lead out"),
				stalls(noValues, "BuildFailed", "ValuesFilesError", "absent.yaml"),
				{Defect: sourcetest.Waits, Outcome: source.Waiting, Condition: "FetchFailed", Reason: "SourceUnavailable", Message: "GitRepository/apps/absent"},
				sourcetest.Fails(sourcetest.Truncated, "ChartPullError", "GitRepository/apps/src"),
			}
		})
	})
	t.Run("copied layer", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *depot {
			obj := new(source.OCIRepository)
			obj.Spec.LayerSelector = &source.OCILayerSelector{Operation: source.LayerCopy}
			return inTree(t, obj, true)
		}
		conforming(t, "ChartPullSucceeded", open, func(k *sourcetest.Kind) {
			k.ReadsContent = true
			k.Hostile = []string{"../../up", "a/../../../up", "/absolute", `a\b`, ".."}
			k.Failures = []sourcetest.Failure{
				stalls(sourcetest.Gone, "FetchFailed", "InvalidChartReference", "elsewhere"),
				sourcetest.Fails(sourcetest.Truncated, "ChartPullError", "OCIRepository/apps/src"),
			}
		})
	})
	t.Run("index", func(t *testing.T) {
		t.Parallel()
		conforming(t, "ChartPullSucceeded", inIndex, func(k *sourcetest.Kind) {
			k.Hostile = []string{"../../up", "a/../../../up", "/absolute", `a\b`, ".."}
			k.Stalls = []sourcetest.Defect{sourcetest.StallFetch, "stall before"}
			k.Failures = []sourcetest.Failure{
				stalls(sourcetest.Gone, "FetchFailed", "InvalidChartReference", "elsewhere"),
				stalls(noVersion, "FetchFailed", "InvalidChartReference", "^7"),
				stalls(badName, "FetchFailed", "InvalidChartReference", "../app"),
				stalls(noValues, "BuildFailed", "ValuesFilesError", "absent.yaml"),
				stalls(sourcetest.Invalid, "FetchFailed", "UnsupportedSourceKind", "Secret"),
				sourcetest.Fails(sourcetest.NoSecret, "AuthenticationFailed", "apps/login"),
				sourcetest.Fails(wrongLogin, "AuthenticationFailed", "401"),
				sourcetest.Fails(sourcetest.Denied, "AuthenticationFailed", "403"),
				sourcetest.Fails(sourcetest.Leaking, "ChartPullError", "400"),
				sourcetest.Fails(sourcetest.Truncated, "ChartPullError", ""),
				sourcetest.Fails(cut, "ChartPullError", ""),
				sourcetest.Fails(flipped, "ChartPullError", ""),
				sourcetest.Fails("no file", "ChartPullError", "404"),
			}
		})
	})
	t.Run("registry", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *depot { return inRegistry(t, false) }
		conforming(t, "ChartPullSucceeded", open, func(k *sourcetest.Kind) {
			k.Stalls = []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch, "stall manifest"}
			k.Failures = []sourcetest.Failure{
				sourcetest.Fails(sourcetest.Gone, "ChartPullError", "elsewhere"),
				sourcetest.Fails(noVersion, "ChartPullError", "^7"),
				stalls(badName, "FetchFailed", "InvalidChartReference", "../app"),
				stalls(noValues, "BuildFailed", "ValuesFilesError", "absent.yaml"),
				sourcetest.Fails(sourcetest.NoSecret, "AuthenticationFailed", "apps/login"),
				sourcetest.Fails(sourcetest.Denied, "AuthenticationFailed", "403"),
				sourcetest.Fails(sourcetest.Leaking, "ChartPullError", "400"),
				sourcetest.Fails(sourcetest.Truncated, "ChartPullError", ""),
				sourcetest.Fails(flipped, "ChartPullError", ""),
				sourcetest.Fails(misnamed, "ChartPullError", "7.7.7"),
			}
		})
	})
	t.Run("signed in a registry", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *depot { return inRegistry(t, true) }
		refused := func(d sourcetest.Defect, reason, message string) sourcetest.Failure {
			return sourcetest.Failure{Defect: d, Outcome: source.Failed, Condition: "SourceVerified", Reason: reason, Message: message}
		}
		conforming(t, "ChartPullSucceeded", open, func(k *sourcetest.Kind) {
			k.Verifies = true
			k.Failures = []sourcetest.Failure{
				refused(sourcetest.Forged, "ChartVerificationError", "signature of something else"),
				refused(unsigned, "ChartVerificationError", "is not signed"),
				refused(noKeys, "VerificationError", "apps/keys"),
			}
		})
	})
}
