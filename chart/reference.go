package chart

import (
	"fmt"
	"path"
	"strings"

	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/source"
)

// maxName bounds the name of a chart, in bytes.
const maxName = 253

// checkName accepts the name of a chart in a repository: lower case letters,
// digits and dashes in parts, with one slash or dot between them (reference A13).
// Dependencies may have other names.
func checkName(name string) error {
	if validName(name) {
		return nil
	}
	return &source.StepError{Step: source.StepResolve, Reason: badReference, Err: invalid(fmt.Errorf(
		"chart name %.300q: want lower case letters, digits and dashes, with single slashes or dots between them, at most %d bytes", name, maxName))}
}

func validName(name string) bool {
	between := true // two parts, where no slash or dot may be
	for _, c := range []byte(name) {
		switch {
		case c == '/' || c == '.':
			if between {
				return false
			}
			between = true
		case c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z':
			between = false
		default:
			return false
		}
	}
	return !between && len(name) <= maxName
}

// checkOwn compares what a chart calls itself with what was offered. A
// leading v of versions does not count, nor do the folders in the name.
func checkOwn(o offer, a *bundle.Archive) error {
	if m := a.Metadata; m == nil || m.Name != path.Base(o.name) || bare(m.Version) != bare(o.version) {
		name, version := "", ""
		if m != nil {
			name, version = m.Name, m.Version
		}
		return fmt.Errorf("the archive holds chart %.200q in version %.200q, not %q in version %q: it was published in the wrong place", name, version, path.Base(o.name), o.version)
	}
	return nil
}

func bare(version string) string { return strings.TrimPrefix(version, "v") }
