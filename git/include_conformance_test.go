package git_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// composed is a repository whose folders deploy and sub come from another
// source, which it includes.
type composed struct {
	*remote
	part *pantry
}

func (c *composed) Publish(tree fstest.MapFS) error {
	part := fstest.MapFS{"deploy": {Mode: fs.ModeDir | 0o755}, "sub": {Mode: fs.ModeDir | 0o755}}
	rest := fstest.MapFS{}
	for name, file := range tree {
		if strings.HasPrefix(name, "deploy/") || strings.HasPrefix(name, "sub/") {
			part[name] = file
		} else {
			rest[name] = file
		}
	}
	if err := c.remote.Publish(rest); err != nil {
		return err
	}
	c.part.objects = nil
	c.part.tree("part", part)
	return nil
}

// The defects of what is included.
const (
	noPart    sourcetest.Defect = "missing include"
	lostPart  sourcetest.Defect = "include without its file"
	circle    sourcetest.Defect = "include of itself"
	elsewhere sourcetest.Defect = "include from nowhere"
)

func (c *composed) Object() source.Object {
	g := c.remote.Object().(*source.GitRepository)
	g.Spec.Include = including("", "part:deploy:deploy", "part:sub:sub").Spec.Include
	switch c.defect {
	case noPart:
		g.Spec.Include[1].Repository.Name = "none"
	case circle:
		g.Spec.Include[1].Repository.Name = g.Metadata.Name
	case elsewhere:
		g.Spec.Include[1].FromPath = "nowhere"
	}
	return g
}

func (c *composed) Origin(obj source.Object) source.Origin {
	env := c.part.env()
	env.Secrets = c.credentials()
	switch c.defect {
	case sourcetest.Waits:
		empty := new(source.GitRepository)
		empty.Metadata.Name = "part"
		source.Default(empty)
		env.Sources = &source.Inventory{Objects: []source.Object{empty}}
	case circle:
		env.Sources = &source.Inventory{Objects: append([]source.Object{obj}, c.part.objects...), Store: c.part.store}
	case lostPart:
		env.Sources = &source.Inventory{Objects: c.part.objects}
	}
	return git.New(obj.(*source.GitRepository), env)
}

func (c *composed) Traffic() sourcetest.Traffic {
	t := c.remote.Traffic()
	t.Content += c.part.opened.Load()
	return t
}

func TestIncludeConformance(t *testing.T) {
	t.Parallel()
	unavailable := source.IncludeUnavailableCondition
	sourcetest.Run(t, sourcetest.Kind{
		Name: "GitRepository with includes",
		Open: func(tb sourcetest.TB) sourcetest.Upstream {
			repo := testenv.NewRepo(t)
			server := testenv.ServeHTTP(t, testenv.HTTP{Username: "user", Password: password}, repo)
			return &composed{&remote{t: tb, repo: repo, server: server, ref: source.GitRepositoryRef{Branch: "main"}}, newPantry(t)}
		},
		Drift: func(obj source.Object) {
			g := obj.(*source.GitRepository)
			g.Spec.Include[0].ToPath = "moved"
			g.Spec.Timeout = source.Duration(time.Minute)
		},
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Waits, Outcome: source.Waiting, Condition: unavailable, Reason: "NoArtifact", Message: "GitRepository/default/part has no artifact yet"},
			{Defect: lostPart, Outcome: source.Waiting, Condition: unavailable, Reason: "NoArtifact", Message: "the artifact is gone"},
			{Defect: noPart, Outcome: source.Waiting, Condition: unavailable, Reason: "NotFound", Message: "GitRepository/default/none: no such object"},
			{Defect: circle, Outcome: source.Stalled, Condition: unavailable, Reason: "IncludeCycle", Message: "GitRepository/default/app → GitRepository/default/app"},
			{Defect: elsewhere, Outcome: source.Failed, Condition: source.StorageOperationFailedCondition, Reason: "CopyFailure", Message: `fromPath "nowhere" does not exist`},
			{Defect: sourcetest.Truncated, Outcome: source.Failed, Condition: source.FetchFailedCondition, Reason: "GitOperationFailed"},
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch},
		Hostile:      []string{"../up", ".git/config"},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	})
}
