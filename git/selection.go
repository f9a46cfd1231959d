package git

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// A selection is what spec.ref comes to after its precedence: commit, name,
// semver, tag, branch (specification, "GitRepositoryRef").
type selection struct {
	field  string              // the deciding field, for messages
	label  string              // what stands before the @ of the revision
	ref    string              // full name of the one ref to look up, "" with commit or semver
	commit object.ID           // pinned commit
	semver *semver.Constraints // range of tags
}

const defaultBranch = "master"

func selectRef(ref *source.GitRepositoryRef) (selection, error) {
	if ref == nil {
		ref = &source.GitRepositoryRef{}
	}
	switch {
	case ref.Commit != "":
		id, err := object.ParseID(ref.Commit)
		if err != nil {
			return selection{}, fmt.Errorf("spec.ref.commit: %w", err)
		}
		s := selection{field: "commit", label: ref.Branch, commit: id}
		if ref.Branch != "" {
			s.ref = "refs/heads/" + ref.Branch
		}
		return s, nil
	case ref.Name != "":
		return selection{field: "name", label: ref.Name, ref: strings.TrimSuffix(ref.Name, "^{}")}, nil
	case ref.SemVer != "":
		c, err := semver.NewConstraint(ref.SemVer)
		if err != nil {
			return selection{}, fmt.Errorf("spec.ref.semver %q: %w", ref.SemVer, err)
		}
		return selection{field: "semver", label: ref.SemVer, semver: c}, nil
	case ref.Tag != "":
		return selection{field: "tag", label: ref.Tag, ref: "refs/tags/" + ref.Tag}, nil
	}
	b := cmp.Or(ref.Branch, defaultBranch)
	return selection{field: "branch", label: b, ref: "refs/heads/" + b}, nil
}

// pinned reports whether the revision is known without asking anybody.
func (s selection) pinned() bool { return !s.commit.IsZero() }

// revision spells the revision of commit under label (reference A4).
func revision(label string, commit object.ID) source.Revision {
	id := commit.Format().String() + ":" + commit.String()
	if label != "" {
		id = label + "@" + id
	}
	return source.Revision{ID: id, File: commit.String() + ".tar.gz"}
}

// commitOf is the inverse of revision.
func commitOf(rev source.Revision) (object.ID, error) {
	_, hex, ok := strings.Cut(rev.ID[strings.LastIndexByte(rev.ID, '@')+1:], ":")
	if !ok {
		return object.ID{}, fmt.Errorf("revision %q: want NAME@sha1:HEX or sha1:HEX", rev.ID)
	}
	return object.ParseID(hex)
}
