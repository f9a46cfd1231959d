package git

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// pointers prepares tree, the commit's own part of what is packed, for lfs.
func (c *content) pointers(_ context.Context, tree fs.FS) (fs.FS, error) {
	return c.origin.withObjects(object.TreeFS(c.db, c.commit.Tree), tree, c.origin.connect)
}

// withObjects returns shown, a view of the tree whole of a repository, with its
// LFS pointers marked, if spec.lfs asks for that: [content.lfs] fetches what is
// packed of them. connect reaches the repository, and is called by then if at all.
func (o *Origin) withObjects(whole, shown fs.FS, connect func(context.Context) (upstream, error)) (fs.FS, error) {
	if !o.repo.Spec.LFS {
		return shown, nil
	}
	attributes, err := lfs.ReadAttributes(whole)
	if err != nil || attributes.None() {
		return shown, err
	}
	configured, err := lfs.ConfiguredURL(whole)
	if err != nil {
		return nil, err
	}
	return lfs.New(shown, attributes, func(ctx context.Context) (lfs.Source, error) {
		up, err := connect(ctx)
		if err != nil {
			return nil, err
		}
		return up.objects(configured), nil
	}), nil
}

// lfs replaces the LFS pointers in view by what they stand for, or with spec.lfs
// unset tells that there are some.
func (c *content) lfs(ctx context.Context, view fs.FS) error {
	limits := c.origin.env.Limits
	if !c.origin.repo.Spec.LFS {
		c.hint(ctx)
		return nil
	}
	held, plain, err := lfs.Fill(ctx, view, lfs.Options{
		FileBytes: cmp.Or(limits.FileBytes, maxFileBytes),
		Bytes:     cmp.Or(limits.Bytes, maxBytes),
		Used:      c.total.Bytes,
		Temp:      limits.Temp,
		Progress:  c.origin.receivingObjects(),
	})
	if err != nil {
		return err
	}
	if held != nil {
		c.holding = append(c.holding, held)
	}
	if n := len(plain); n > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%d files have the attribute filter=lfs and are no LFS pointers, they are packed as they are: %s",
			n, enumerate(plain, 3)))
	}
	return nil
}

// enumerate names the first few of names.
func enumerate(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " …"
}

func (o *Origin) receivingObjects() func(done, total int64) {
	name, err := source.Address(o.repo)
	if o.env.Progress == nil || err != nil {
		return nil
	}
	return func(done, total int64) {
		o.env.Progress(source.Progress{Object: name, Phase: "receiving LFS objects", Done: done, Total: total, Unit: "bytes"})
	}
}

// hint adds a note when pointers are packed. It costs next to nothing where the
// tree has no .gitattributes at its top.
func (c *content) hint(ctx context.Context) {
	top, err := fs.ReadDir(object.TreeFS(c.db, c.commit.Tree), ".")
	if err != nil || !slices.ContainsFunc(top, func(e fs.DirEntry) bool { return e.Name() == ".gitattributes" }) {
		return
	}
	if n, err := lfs.Count(ctx, c.rules.View(ctx, c.own)); err == nil && n > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%d files are Git LFS pointers, packed as they are: set spec.lfs to get what they stand for", n))
	}
}
