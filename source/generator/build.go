package generator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
)

// Limits of one artifact and its inputs. The first two apply if the environment sets none.
const (
	maxBytes   = 1 << 30
	maxEntries = 1_000_000
	maxName    = 4096     // bytes, as in [artifact.Read]
	maxYAML    = 4 << 20  // bytes of a file that is merged
	maxMerged  = 64 << 20 // bytes of all merged files
)

// A builder executes the operations of one artifact.
type builder struct {
	*content
	ctx           context.Context
	trees         map[string]*artifact.Tree // of sources, by digest
	field         string                    // of the current operation, for errors
	bytes         int64                     // of the content of the tree
	merged        int
	openedBytes   int64 // of opened archives
	openedEntries int
	spooled       int64
}

// build executes the operations.
func (o *origin) build(ctx context.Context, inputs []artifact.Artifact) (*content, error) {
	c := &content{origin: o, tree: &Tree{nodes: map[string]*node{".": {name: ".", mode: fs.ModeDir | 0o755}}}}
	b := &builder{content: c, ctx: ctx, trees: map[string]*artifact.Tree{}}
	for i := range o.obj.Composed.Artifact.Copy {
		err := b.run(i, inputs)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.Is(err, source.ErrWaiting):
			err = o.unavailable(err)
		default:
			err = &source.StepError{Step: source.StepBuild, Reason: "BuildFailed", Err: fmt.Errorf("%s: %s.%s: %w", o, o.field(i), b.field, err)}
		}
		return nil, errors.Join(err, c.Close())
	}
	var err error
	c.rules, err = artifact.Ignore{Base: artifact.DefaultIgnore().Base}.Compile(ctx, nil)
	return c, err
}

// field returns the field name of operation i.
func (o *origin) field(i int) string { return fmt.Sprintf("%s.copy[%d]", o.obj.Composed.Field, i) }

// An operation is a [source.CopyOperation] being executed.
type operation struct {
	*source.CopyOperation
	step   Step // common part of the steps of its files, without Path
	target string
	exact  bool   // the pattern is a path
	base   string // literal beginning of the pattern

	overwrote []string // files of other operations
}

// run executes operation i.
func (b *builder) run(i int, inputs []artifact.Artifact) error {
	c := &b.origin.obj.Composed.Artifact.Copy[i]
	b.field = "from"
	alias, pattern := c.Source()
	ref, in := b.origin.obj.Composed.Find("@"+alias), b.origin.input("@"+alias, inputs)
	src, err := b.open(in)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	op := &operation{CopyOperation: c, step: Step{Operation: b.origin.field(i), Source: ref.String(), Revision: in.Revision},
		exact: !strings.ContainsAny(pattern, "*?[]"), base: pattern}
	target, folder := c.Target()
	op.target = target
	prefix := "" // prefix to remove from the paths in the source
	if op.exact {
		if prefix = pattern; pattern == "." {
			prefix = ""
		}
		if isDir(src, pattern) || folder || isDir(b.tree, target) {
			target = path.Join(target, path.Base(pattern))
		}
	} else if op.base, _ = doublestar.SplitPattern(pattern); pattern == op.base+"/**" {
		prefix = op.base
	}
	matched, copied, chosen := 0, 0, "" // chosen is a folder that is copied with its content
	err = fs.WalkDir(src, op.base, func(name string, d fs.DirEntry, err error) error {
		switch {
		case name == op.base && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || b.ctx.Err() != nil:
			return cmp.Or(err, b.ctx.Err())
		}
		if chosen == "" || !strings.HasPrefix(name, chosen+"/") {
			chosen = ""
			if match, err := doublestar.Match(pattern, name); !op.exact && (!match || name == op.base) {
				return err
			}
			if matched++; d.IsDir() && c.Strategy != source.CopyExtract {
				chosen = name
			}
		}
		if op.excludes(name) && !(op.exact && name == op.base && d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		copied++
		return b.copy(op, src, name, d, path.Join(target, strings.TrimPrefix(name, prefix)))
	})
	if n := len(op.overwrote); n > 0 {
		b.notes = append(b.notes, fmt.Sprintf("%s overwrites files of earlier operations, %d in all: %s", op.step.Operation, n, strings.Join(op.overwrote[:min(n, 5)], ", ")))
	}
	switch {
	case err != nil || c.Optional:
		return err
	case matched == 0:
		return fmt.Errorf("nothing in %s of revision %s matches %q: correct it, or set optional", ref, in.Revision, pattern)
	case copied == 0:
		b.field = "exclude"
		return fmt.Errorf("all that %q matches in %s is excluded: correct it, or set optional", pattern, ref)
	}
	return nil
}

func isDir(tree fs.FS, name string) bool {
	info, err := fs.Stat(tree, name)
	return err == nil && info.IsDir()
}

// excludes reports whether a path is excluded. The patterns have been validated.
func (op *operation) excludes(name string) bool {
	return slices.ContainsFunc(op.Exclude, func(pattern string) bool {
		return doublestar.MatchUnvalidated(pattern, name) || doublestar.MatchUnvalidated(pattern, strings.TrimPrefix(name, op.base+"/")) ||
			!strings.Contains(pattern, "/") && doublestar.MatchUnvalidated(pattern, path.Base(name))
	})
}

// copy copies one file or folder of a source.
func (b *builder) copy(op *operation, src fs.FS, name string, d fs.DirEntry, dest string) error {
	b.field = "from"
	switch lower := strings.ToLower(name); {
	case op.Strategy != source.CopyExtract:
		return b.put(op, d, name, func() (io.ReadCloser, error) { return src.Open(name) }, dest)
	case !d.IsDir() && (strings.HasSuffix(lower, ".tar.gz") || strings.HasSuffix(lower, ".tgz")):
		return b.extract(op, src, name)
	case op.exact:
		return fmt.Errorf("%s is no archive: only a file that ends in .tar.gz or .tgz can be extracted", name)
	}
	return nil
}

// extract copies the content of an archive.
func (b *builder) extract(op *operation, src fs.FS, name string) error {
	f, err := src.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	archive, err := artifact.Read(f, b.origin.env.Limits)
	if err == nil {
		defer archive.Close()
		err = b.checkOpened(archive)
	}
	if err != nil {
		return fmt.Errorf("extract %s: %w", name, err)
	}
	if left := archive.Report().LeftOutTotal; left > 0 {
		b.notes = append(b.notes, fmt.Sprintf("left out of %s: %d links or devices", name, left))
	}
	return fs.WalkDir(archive, ".", func(inner string, d fs.DirEntry, err error) error {
		if err != nil || b.ctx.Err() != nil {
			return cmp.Or(err, b.ctx.Err())
		}
		var open opener
		if !d.IsDir() {
			content, err := archive.Open(inner)
			if err == nil {
				open, err = b.spoolContent(content)
			}
			if err != nil {
				return err
			}
		}
		return b.put(op, d, name+":"+inner, open, path.Join(op.target, inner))
	})
}

// spoolContent writes content to the spool and returns an opener of it, so that archives, of which there
// may be many, need not stay open.
func (b *builder) spoolContent(content io.Reader) (_ opener, err error) {
	if b.spool == nil {
		if b.spool, err = b.origin.env.Limits.Spool(); err != nil {
			return nil, err
		}
	}
	spool, begin := b.spool, b.spooled
	size, err := io.Copy(spool, content)
	b.spooled += size
	return func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(spool, begin, size)), nil }, err
}

// put creates dest from a file or folder, which is called name in its source.
func (b *builder) put(op *operation, d fs.DirEntry, name string, open opener, dest string) error {
	b.field = "to"
	if d.IsDir() {
		return b.mkdir(dest)
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	step := op.step
	step.Path = name
	n := b.tree.nodes[dest]
	switch {
	case n == nil:
		if err := b.mkdir(path.Dir(dest)); err != nil {
			return err
		}
		n = &node{name: dest}
		b.tree.add(n)
	case n.IsDir():
		return fmt.Errorf("%s is a folder in the artifact by then, and cannot be a file", dest)
	case op.Strategy == source.CopyMerge:
		b.field = "from"
		return b.merge(n, open, step)
	default:
		for i := range n.steps {
			n.steps[i].Overwritten = true
		}
		op.overwrote = append(op.overwrote, dest)
	}
	b.bytes += info.Size() - n.size
	n.mode, n.size, n.open, n.steps = info.Mode(), info.Size(), open, append(n.steps, step)
	return b.checkLimits(b.bytes, len(b.tree.nodes), dest)
}

// mkdir creates a folder and its parents.
func (b *builder) mkdir(name string) error {
	n := b.tree.nodes[name]
	switch {
	case n != nil && !n.IsDir():
		return fmt.Errorf("%s is a file in the artifact by then, and cannot be a folder", name)
	case n != nil:
		return nil
	}
	if err := b.mkdir(path.Dir(name)); err != nil {
		return err
	}
	b.tree.add(&node{name: name, mode: fs.ModeDir | 0o755})
	return b.checkLimits(b.bytes, len(b.tree.nodes), name)
}

// checkLimits returns an error if the sums or the name exceed the limits.
func (b *builder) checkLimits(bytes int64, entries int, name string) error {
	l := b.origin.env.Limits
	switch mostBytes, mostEntries := cmp.Or(l.Bytes, maxBytes), cmp.Or(l.Entries, maxEntries); {
	case len(name) > maxName:
		return fmt.Errorf("a path in the artifact would have more than %d bytes", maxName)
	case mostBytes > 0 && bytes > mostBytes:
		return &artifact.LimitError{What: "bytes", Limit: mostBytes, Name: name}
	case mostEntries > 0 && entries > mostEntries:
		return &artifact.LimitError{What: "entries", Limit: int64(mostEntries), Name: name}
	}
	return nil
}

// open returns the tree of the artifact of a source.
func (b *builder) open(a artifact.Artifact) (fs.FS, error) {
	if tree := b.trees[a.Digest]; tree != nil {
		return tree, nil
	}
	tree, release, err := b.origin.env.Archives.Open(b.ctx, b.origin.env.Sources, a, b.origin.env.Limits)
	switch {
	case err == nil:
		b.trees[a.Digest] = tree
		b.releases = append(b.releases, release)
		return tree, b.checkOpened(tree)
	case errors.Is(err, artifact.ErrFormat):
		err = fmt.Errorf("%w: only a source whose artifact is an archive of files can be copied from", err)
	}
	release()
	return nil, err
}

// checkOpened returns an error if the total of all opened archives exceeds the limits.
func (b *builder) checkOpened(tree *artifact.Tree) error {
	r := tree.Report()
	b.openedBytes, b.openedEntries = b.openedBytes+r.Bytes, b.openedEntries+r.Files+r.Dirs
	return b.checkLimits(b.openedBytes, b.openedEntries, "all that the artifact is made of")
}

// merge merges a file into n.
func (b *builder) merge(n *node, open opener, step Step) error {
	into, err := readYAML(n.open)
	if err != nil {
		return fmt.Errorf("merge into %s of the artifact: %w", n.name, err)
	}
	from, err := readYAML(open)
	if err != nil {
		return fmt.Errorf("merge %s: %w", step.Path, err)
	}
	text, err := yaml.Marshal(overlay(into, from))
	if err != nil {
		return err
	}
	if b.merged += len(text); b.merged > maxMerged {
		return fmt.Errorf("all that is merged has more than %d MiB", maxMerged>>20)
	}
	b.bytes += int64(len(text)) - n.size
	n.size, n.steps = int64(len(text)), append(n.steps, step)
	if n.open, err = b.spoolContent(bytes.NewReader(text)); err != nil {
		return err
	}
	return b.checkLimits(b.bytes, len(b.tree.nodes), n.name)
}

// separator matches the line before each YAML document of a file except the first.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t\r]|$)`)

// readYAML reads the documents of a file as one mapping. Numbers keep their spelling.
func readYAML(open opener) (all map[string]any, err error) {
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxYAML+1))
	if err == nil && len(text) > maxYAML {
		err = fmt.Errorf("it has more than %d MiB", maxYAML>>20)
	}
	if err != nil {
		return nil, err
	}
	for _, one := range separator.Split(string(text), -1) {
		var fields map[string]any
		err := document.CheckYAML([]byte(one), maxYAML)
		if err == nil {
			err = yaml.Unmarshal([]byte(one), &fields, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d })
		}
		if err != nil {
			return nil, fmt.Errorf("it is no YAML with a mapping in each document: %w", err)
		}
		all = overlay(all, fields)
	}
	return all, nil
}

// overlay returns base with the values of overrides: mappings are merged, other values are replaced.
func overlay(base, overrides map[string]any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, base)
	for key, value := range overrides {
		into, was := out[key].(map[string]any)
		from, is := value.(map[string]any)
		if was && is {
			value = overlay(into, from)
		}
		out[key] = value
	}
	return out
}
