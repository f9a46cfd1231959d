package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/version"
	"github.com/headgate-io/headgate/source"
)

// A selection is the result of applying the precedence to spec.ref: commit, name,
// semver, tag, branch (specification, "GitRepositoryRef").
type selection struct {
	field  string              // the deciding field, for messages
	label  string              // the part of the revision before the @
	ref    string              // full name of the one ref to look up, "" with commit or semver
	commit object.ID           // pinned commit: the revision is known without a request
	semver *semver.Constraints // range of tags
	locked bool                // a lock pins commit, whatever the other fields say
	tag    object.ID           // the tag object in a lock, zero if there is none
}

func selectRef(ref *source.GitRepositoryRef) (selection, error) {
	if ref == nil {
		ref = &source.GitRepositoryRef{}
	}
	switch {
	case ref.Commit != "":
		id, err := object.ParseID(ref.Commit)
		if err != nil {
			return selection{}, specError(fmt.Errorf("spec.ref.commit: %w", err))
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
			return selection{}, specError(fmt.Errorf("spec.ref.semver %q: %w", ref.SemVer, err))
		}
		return selection{field: "semver", label: ref.SemVer, semver: c}, nil
	case ref.Tag != "":
		return selection{field: "tag", label: ref.Tag, ref: "refs/tags/" + ref.Tag}, nil
	}
	b := cmp.Or(ref.Branch, "master")
	return selection{field: "branch", label: b, ref: "refs/heads/" + b}, nil
}

// selection returns the selection of spec.ref, or that of the lock if there is one.
func (o *Origin) selection() (selection, error) {
	s, err := selectRef(o.repo.Spec.Ref)
	pin := o.env.Pin
	if pin == nil || err != nil {
		return s, err
	}
	s.locked = true
	if s.commit, err = commitOf(source.Revision{ID: pin.Revision}); err == nil && pin.Tag != "" {
		s.tag, err = object.ParseID(pin.Tag)
	}
	if err != nil {
		return s, fmt.Errorf("%w: the lock: %w", source.ErrInvalid, err)
	}
	s.label = labelOf(pin.Revision)
	return s, nil
}

// proveSelected checks that spec.ref leads to the commit of the lock.
func (o *Origin) proveSelected(ctx context.Context, locked selection) error {
	sel, err := selectRef(o.repo.Spec.Ref)
	if err != nil {
		return err
	}
	switch {
	case !sel.commit.IsZero() && sel.commit != locked.commit:
		return notFound(fmt.Sprintf("spec.ref.commit is %s, the lock has %s", sel.commit, locked.commit))
	case !sel.commit.IsZero() && sel.ref == "":
		return nil
	case sel.semver != nil:
		v, err := semver.NewVersion(locked.label)
		if err != nil || !sel.semver.Check(v) {
			return notFound(fmt.Sprintf("tag %q of the lock is not in the range %q of spec.ref.semver", locked.label, sel.label))
		}
		sel.label, sel.ref = locked.label, "refs/tags/"+locked.label
	}
	sel.commit = locked.commit
	up, err := o.openUpstream(ctx)
	if err != nil {
		return err
	}
	return errors.Join(prove(ctx, up, sel), up.Close())
}

// selectsTag reports whether s selects a tag, which a later run may find elsewhere.
func (s selection) selectsTag() bool {
	return s.semver != nil || strings.HasPrefix(s.ref, "refs/tags/")
}

// revision returns the revision of commit under label (reference A4).
func revision(label string, commit object.ID) source.Revision {
	id := commit.Format().String() + ":" + commit.String()
	if label != "" {
		id = label + "@" + id
	}
	return source.Revision{ID: id, File: commit.String() + ".tar.gz"}
}

// labelOf returns the part of a revision before the @, "" if there is none.
func labelOf(revision string) string { return revision[:max(0, strings.LastIndexByte(revision, '@'))] }

// commitOf is the inverse of revision.
func commitOf(rev source.Revision) (object.ID, error) {
	_, hex, ok := strings.Cut(rev.ID[strings.LastIndexByte(rev.ID, '@')+1:], ":")
	if !ok {
		return object.ID{}, fmt.Errorf("revision %q: want NAME@sha1:HEX or sha1:HEX", rev.ID)
	}
	return object.ParseID(hex)
}

// lookUp finds the one ref that sel names.
func lookUp(ctx context.Context, up upstream, sel selection) (object.Ref, error) {
	refs, err := up.refs(ctx, true, sel.ref)
	if err != nil {
		return object.Ref{}, err
	}
	for _, r := range refs {
		if r.Name == sel.ref {
			return r, nil
		}
	}
	// HEAD tells an empty repository from a wrong name, and lets the hint name the
	// default branch.
	head, err := up.refs(ctx, true, "HEAD")
	if err != nil {
		return object.Ref{}, err
	}
	hint := "check spec.ref." + sel.field
	for _, r := range head {
		if r.Symref != "" && sel.field == "branch" {
			hint = fmt.Sprintf("the repository's own default is %s: set spec.ref.branch", r.Symref)
		}
	}
	return object.Ref{}, notFound(fmt.Sprintf("%s %q does not exist in the repository; %s", sel.field, sel.label, hint))
}

// A tie remembers which of several tags of equal precedence won, so that their
// commits are not fetched again until a tag changes.
type tie struct {
	Tags []string `json:"tags"` // NAME COMMIT, sorted
	Wins string   `json:"wins"`
}

// highestTag returns the highest tag within the range of sel. If several tags have equal
// precedence it also returns a tie, which the caller passes as before the next time.
func highestTag(ctx context.Context, up upstream, sel selection, before *tie) (object.Ref, *tie, error) {
	tags, err := up.refs(ctx, false, "refs/tags/")
	if err != nil {
		return object.Ref{}, nil, err
	}
	h := version.Highest[object.Ref]{Range: sel.semver}
	for _, t := range tags {
		h.Add(t, t.Tag())
	}
	found := h.Found
	switch len(found) {
	case 0:
		return object.Ref{}, nil, notFound(fmt.Sprintf("no match found for semver: %s among %d tags", sel.label, len(tags)))
	case 1:
		return found[0], nil, nil
	}
	now := &tie{Tags: make([]string, 0, len(found))}
	for _, t := range found {
		now.Tags = append(now.Tags, t.Tag()+" "+t.Commit().String())
	}
	slices.Sort(now.Tags)
	i := -1
	if before != nil && slices.Equal(before.Tags, now.Tags) {
		i = slices.IndexFunc(found, func(r object.Ref) bool { return r.Tag() == before.Wins })
	}
	if i < 0 {
		if i, err = youngestTag(ctx, up, found); err != nil {
			return object.Ref{}, nil, fmt.Errorf("compare the commits of %d tags of equal precedence: %w", len(found), err)
		}
	}
	now.Wins = found[i].Tag()
	return found[i], now, nil
}

// youngestTag returns the index of the tag whose commit has the latest committer
// time; equal times are decided by name.
func youngestTag(ctx context.Context, up upstream, tags []object.Ref) (int, error) {
	ids := make([]object.ID, len(tags))
	for i, t := range tags {
		ids[i] = t.ID // the tag itself: some servers send only what refs point to
	}
	db, err := up.history(ctx, ids, 1)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	best, when := -1, time.Time{}
	for i, t := range tags {
		c, err := object.ReadCommit(db, t.Commit())
		if err != nil {
			return 0, err
		}
		if d := c.Time().Compare(when); best < 0 || d > 0 || d == 0 && t.Name > tags[best].Name {
			best, when = i, c.Time()
		}
	}
	return best, nil
}

// prove checks that the pinned commit of sel is on its branch: the tip of the branch
// or an ancestor of it. It transfers no more history than needed, and only commits if
// the server can leave out the rest.
func prove(ctx context.Context, up upstream, sel selection) error {
	tip, err := lookUp(ctx, up, sel)
	if err != nil {
		return err
	}
	what, remedy := "branch", ": correct spec.ref.commit or spec.ref.branch"
	if sel.field != "commit" {
		remedy = ""
	}
	if sel.selectsTag() || sel.field == "name" {
		what = sel.field
	}
	for depth := 64; ; depth = nextDepth(depth) {
		found, missing, err := findAncestor(ctx, up, tip.Commit(), sel.commit, depth)
		switch {
		case err != nil:
			return fmt.Errorf("prove that commit %s is on %s %q: %w", sel.commit, what, sel.label, err)
		case found:
			return nil
		case missing == nil:
			return notFound(fmt.Sprintf("commit %s is not on %s %q (its tip is %s)%s",
				sel.commit, what, sel.label, tip.Commit(), remedy))
		case depth == 0:
			return fmt.Errorf("commit %s cannot be proved to be on %s %q, whose history is incomplete (its tip is %s): %w",
				sel.commit, what, sel.label, tip.Commit(), missing)
		}
	}
}

// nextDepth returns the depth to try after depth. Depths grow so fast that all tries
// together cost little more than the last; the last is 0, which means everything.
func nextDepth(depth int) int {
	if depth *= 8; depth <= 1<<20 {
		return depth
	}
	return 0
}

// findAncestor looks for commit in the history of tip down to depth. If it is not found,
// missing is the error for a commit that the history continues with and that was not
// received; nil means that the history was searched to its end.
func findAncestor(ctx context.Context, up upstream, tip, commit object.ID, depth int) (found bool, missing, err error) {
	if tip == commit {
		return true, nil, nil
	}
	db, err := up.history(ctx, []object.ID{tip}, depth)
	if err != nil {
		return false, nil, err
	}
	defer db.Close()
	seen := map[object.ID]bool{tip: true}
	for queue := []object.ID{tip}; len(queue) > 0; {
		if ctx.Err() != nil {
			return false, nil, context.Cause(ctx)
		}
		c, err := object.ReadCommit(db, queue[0])
		queue = queue[1:]
		switch {
		case isAbsent(err):
			missing = err
			continue
		case err != nil:
			return false, nil, err
		}
		for _, p := range c.Parents {
			if p == commit {
				return true, nil, nil
			}
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return false, missing, nil
}
