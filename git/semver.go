package git

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/version"
)

// candidates returns the tags with the highest version that c allows.
func candidates(tags []ref, c *semver.Constraints) []ref {
	h := version.Highest[ref]{Range: c}
	for _, t := range tags {
		h.Add(t, t.tag())
	}
	return h.Found
}

// A tie remembers which of several tags of equal precedence won, so that the
// commits are not asked for again while the tags stay where they are.
type tie struct {
	Tags []string `json:"tags"` // NAME COMMIT, sorted
	Wins string   `json:"wins"`
}

// highest returns the highest tag within the range of sel. What decided a tie
// is returned to be given as before the next time.
func highest(ctx context.Context, up upstream, sel selection, before *tie) (ref, *tie, error) {
	tags, err := up.refs(ctx, false, "refs/tags/")
	if err != nil {
		return ref{}, nil, err
	}
	found := candidates(tags, sel.semver)
	switch len(found) {
	case 0:
		return ref{}, nil, notFound(fmt.Sprintf("no match found for semver: %s among %d tags", sel.label, len(tags)))
	case 1:
		return found[0], nil, nil
	}
	now := &tie{Tags: make([]string, 0, len(found))}
	for _, t := range found {
		now.Tags = append(now.Tags, t.tag()+" "+t.commit().String())
	}
	slices.Sort(now.Tags)
	i := -1
	if before != nil && slices.Equal(before.Tags, now.Tags) {
		i = slices.IndexFunc(found, func(r ref) bool { return r.tag() == before.Wins })
	}
	if i < 0 {
		if i, err = youngest(ctx, up, found); err != nil {
			return ref{}, nil, fmt.Errorf("compare the commits of %d tags of equal precedence: %w", len(found), err)
		}
	}
	now.Wins = found[i].tag()
	return found[i], now, nil
}

// youngest returns the index of the tag whose commit has the latest committer
// time; equal times are decided by name.
func youngest(ctx context.Context, up upstream, tags []ref) (int, error) {
	ids := make([]object.ID, len(tags))
	for i, t := range tags {
		ids[i] = t.ID // servers that send only what refs point to want the tag's own
	}
	db, err := up.history(ctx, ids, 1)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	best, when := -1, time.Time{}
	for i, t := range tags {
		c, err := object.ReadCommit(db, t.commit())
		if err != nil {
			return 0, err
		}
		if d := c.Committer.When.Compare(when); best < 0 || d > 0 || d == 0 && t.Name > tags[best].Name {
			best, when = i, c.Committer.When
		}
	}
	return best, nil
}
