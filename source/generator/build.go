package generator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// Bounds of what one artifact is made of, where those of the environment are not set.
const (
	maxBytes   = 1 << 30
	maxEntries = 1_000_000
	maxName    = 4096     // bytes, as [artifact.Read] has it
	maxYAML    = 4 << 20  // bytes of a file that is merged
	maxMerged  = 64 << 20 // bytes of all that was merged
	maxNotes   = 10
)

// A builder runs the operations of one artifact.
type builder struct {
	*content
	ctx    context.Context
	trees  map[string]*artifact.Tree // by digest
	field  string                    // of the operation, which an error is about
	bytes  int64                     // of the tree
	merged int
	opened struct {
		bytes   int64
		entries int
	}
	overwritten int
}

// build runs the operations.
func (o *origin) build(ctx context.Context, inputs []artifact.Artifact) (*content, error) {
	root := &node{name: ".", mode: fs.ModeDir | 0o755}
	c := &content{origin: o, tree: &Tree{nodes: map[string]*node{".": root}, origin: o}}
	b := &builder{content: c, ctx: ctx, trees: map[string]*artifact.Tree{}}
	for i := range o.obj.Composed.Artifact.Copy {
		if err := b.run(i, inputs); err != nil {
			return nil, errors.Join(b.failure(i, err), c.Close())
		}
	}
	if more := b.overwritten - maxNotes; more > 0 {
		c.notes = append(c.notes, fmt.Sprintf("and %d more files are overwritten", more))
	}
	c.tree.seal()
	var err error
	c.rules, err = artifact.Ignore{Base: artifact.DefaultIgnore().Base}.Compile(ctx, nil)
	return c, err
}

// failure says which field an error is about.
func (b *builder) failure(i int, err error) error {
	switch {
	case b.ctx.Err() != nil:
		return context.Cause(b.ctx)
	case errors.Is(err, source.ErrWaiting):
		return b.origin.unavailable(err)
	}
	return &source.StepError{Step: source.StepBuild, Reason: "BuildFailed",
		Err: fmt.Errorf("%s: %s.copy[%d].%s: %w", b.origin, b.origin.obj.Composed.Field, i, b.field, err)}
}

// An operation is a [source.CopyOperation] under way.
type operation struct {
	*source.CopyOperation
	index   int
	pattern string
	literal bool   // the pattern is a path
	base    string // where what the pattern matches begins
	cut     string // what paths in the source lose
	head    string // what they get in its place
	target  string
	folder  bool // target ends with a slash
	src     fs.FS
}

// run runs operation i.
func (b *builder) run(i int, inputs []artifact.Artifact) error {
	op := &operation{CopyOperation: &b.origin.obj.Composed.Artifact.Copy[i], index: i}
	b.field = "from"
	var alias string
	alias, op.pattern = op.Source()
	op.target, op.folder = op.Target()
	in := b.origin.input(alias, inputs)
	ref, _ := b.origin.obj.Composed.Find(alias)
	b.tree.from = append(b.tree.from, step{ref, in.Revision})
	var err error
	if op.src, err = b.open(in); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	if op.literal = !strings.ContainsAny(op.pattern, "*?[]"); op.literal {
		op.base, op.cut, op.head = op.pattern, op.pattern, path.Base(op.pattern)
	} else {
		op.base = literal(op.pattern)
		if dir, all := strings.CutSuffix(op.pattern, "/**"); all && dir == op.base {
			op.cut = dir
		}
	}
	matched, kept, err := b.walk(op)
	switch {
	case err != nil || op.Optional:
		return err
	case matched == 0:
		return fmt.Errorf("nothing in %s of revision %s matches %q: correct it, or set optional", ref, in.Revision, op.pattern)
	case kept == 0:
		b.field = "exclude"
		return fmt.Errorf("all that %q matches in %s is excluded: correct it, or set optional", op.pattern, ref)
	}
	return nil
}

// literal returns the folder in which all that a pattern matches is.
func literal(pattern string) string {
	var parts []string
	for part := range strings.SplitSeq(pattern, "/") {
		if strings.ContainsAny(part, `*?[]{}\`) {
			break
		}
		parts = append(parts, part)
	}
	return cmp.Or(path.Join(parts...), ".")
}

// walk copies what an operation selects, and returns how much its pattern matches, and
// how much of that is not excluded.
func (b *builder) walk(op *operation) (matched, kept int, err error) {
	chosen := "" // a folder that is copied with what it holds
	return matched, kept, fs.WalkDir(op.src, op.base, func(name string, d fs.DirEntry, err error) error {
		switch {
		case name == op.base && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case b.ctx.Err() != nil:
			return context.Cause(b.ctx)
		}
		if chosen != "." && !strings.HasPrefix(name, chosen+"/") || chosen == "" {
			chosen = ""
			if !op.literal {
				if match, err := doublestar.Match(op.pattern, name); !match || name == op.base {
					return err
				}
			}
			if matched++; d.IsDir() && op.Strategy != source.CopyExtract {
				chosen = name
			}
		}
		if op.excludes(name) && (name != op.base || !d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		kept++
		return b.copy(op, name, d)
	})
}

// excludes reports whether a path is excluded.
func (op *operation) excludes(name string) bool {
	below := strings.TrimPrefix(name, op.base+"/")
	return slices.ContainsFunc(op.Exclude, func(pattern string) bool {
		return matches(pattern, name) || matches(pattern, below) || !strings.Contains(pattern, "/") && matches(pattern, path.Base(name))
	})
}

// matches is false for a pattern that is none: documents with it are refused.
func matches(pattern, name string) bool {
	match, err := doublestar.Match(pattern, name)
	return match && err == nil
}

// copy copies one file or folder of a source.
func (b *builder) copy(op *operation, name string, d fs.DirEntry) error {
	b.field = "from"
	dest := path.Join(op.target, op.head, strings.TrimPrefix(strings.TrimPrefix(name, op.cut), "/"))
	if op.cut == "." {
		dest = path.Join(op.target, name)
	}
	switch single := op.literal && name == op.base; {
	case op.Strategy == source.CopyExtract && !d.IsDir() && isArchive(name):
		return b.extract(op, name)
	case op.Strategy == source.CopyExtract && single:
		return fmt.Errorf("%s is no archive: only a file that ends in .tar.gz or .tgz can be extracted", name)
	case op.Strategy == source.CopyExtract:
		return nil
	case d.IsDir():
		b.field = "to"
		return b.mkdir(dest)
	case single && !op.folder && (b.tree.nodes[op.target] == nil || !b.tree.nodes[op.target].IsDir()):
		dest = op.target
	case single:
		dest = path.Join(op.target, path.Base(name))
	}
	return b.put(op, name, name, op.src, dest)
}

// isArchive reports whether a file can be extracted.
func isArchive(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
}

// extract copies what an archive holds.
func (b *builder) extract(op *operation, name string) error {
	f, err := op.src.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	archive, err := b.hold(artifact.Read(f, b.limits()))
	if err != nil {
		return fmt.Errorf("extract %s: %w", name, err)
	}
	if left := archive.Report().LeftOutTotal; left > 0 {
		b.notes = append(b.notes, fmt.Sprintf("left out of %s: %d links or devices", name, left))
	}
	return fs.WalkDir(archive, ".", func(inner string, d fs.DirEntry, err error) error {
		dest := path.Join(op.target, inner)
		switch {
		case err != nil:
			return err
		case b.ctx.Err() != nil:
			return context.Cause(b.ctx)
		case d.IsDir():
			b.field = "to"
			return b.mkdir(dest)
		}
		return b.put(op, name+":"+inner, inner, archive, dest)
	})
}

// put makes the file dest of the file name of tree. Shown is what it is called.
func (b *builder) put(op *operation, shown, name string, tree fs.FS, dest string) error {
	info, err := fs.Stat(tree, name)
	if err != nil {
		return err
	}
	n, from := b.tree.nodes[dest], origination{operation: op.index, path: shown}
	switch b.field = "to"; {
	case n == nil:
		if err := b.mkdir(path.Dir(dest)); err != nil {
			return err
		}
		n = &node{name: dest}
		b.tree.add(n)
	case n.IsDir():
		return fmt.Errorf("%s is a folder in the artifact by then, and cannot be a file", dest)
	case op.Strategy == source.CopyMerge:
		b.field, from.merged = "from", true
		n.steps = append(n.steps, from)
		return b.merge(n, tree, name)
	default:
		last := n.steps[len(n.steps)-1].operation
		if b.overwritten++; b.overwritten <= maxNotes {
			b.notes = append(b.notes, fmt.Sprintf("%s.copy[%d] overwrites %s of copy[%d]", b.origin.obj.Composed.Field, op.index, dest, last))
		}
	}
	b.bytes += info.Size() - n.size
	n.mode, n.size, n.tree, n.path, n.merged, n.steps = info.Mode(), info.Size(), tree, name, nil, append(n.steps, from)
	return b.within(dest)
}

// mkdir makes a folder.
func (b *builder) mkdir(name string) error {
	if err := b.tree.mkdir(name); err != nil {
		return err
	}
	return b.within(name)
}

// within returns an error if the tree is more than the limits.
func (b *builder) within(name string) error {
	l := b.origin.env.Limits
	bytes, entries := cmp.Or(l.Bytes, maxBytes), cmp.Or(l.Entries, maxEntries)
	switch {
	case len(name) > maxName:
		return fmt.Errorf("a path in the artifact would have more than %d bytes", maxName)
	case bytes > 0 && b.bytes > bytes:
		return &artifact.LimitError{What: "bytes", Limit: bytes, Name: name}
	case entries > 0 && len(b.tree.nodes) > entries:
		return &artifact.LimitError{What: "entries", Limit: int64(entries), Name: name}
	}
	return nil
}

// open returns the tree of the artifact of a source.
func (b *builder) open(a artifact.Artifact) (fs.FS, error) {
	if tree := b.trees[a.Digest]; tree != nil {
		return tree, nil
	}
	tree, err := b.hold(source.OpenArchive(b.ctx, b.origin.env.Sources, a, b.limits()))
	if errors.Is(err, artifact.ErrFormat) {
		err = fmt.Errorf("%w: only a source whose artifact is an archive of files can be copied from", err)
	}
	if err != nil {
		return nil, err
	}
	b.trees[a.Digest] = tree
	return tree, nil
}

// limits returns what is left of the limits on what is opened.
func (b *builder) limits() artifact.Limits {
	l := b.origin.env.Limits
	if l.Bytes = cmp.Or(l.Bytes, maxBytes); l.Bytes > 0 {
		l.Bytes = max(l.Bytes-b.opened.bytes, 1)
	}
	if l.Entries = cmp.Or(l.Entries, maxEntries); l.Entries > 0 {
		l.Entries = max(l.Entries-b.opened.entries, 1)
	}
	return l
}

// hold counts a tree towards the limits, and has it closed with the content.
func (b *builder) hold(tree *artifact.Tree, err error) (*artifact.Tree, error) {
	if err != nil {
		if _, over := errors.AsType[*artifact.LimitError](err); over && b.opened.entries > 0 {
			err = fmt.Errorf("%w, together with what was opened before it", err)
		}
		return nil, err
	}
	b.holding = append(b.holding, tree)
	r := tree.Report()
	b.opened.bytes += r.Bytes
	b.opened.entries += r.Files + r.Dirs
	return tree, nil
}

// merge merges the file name of tree into n.
func (b *builder) merge(n *node, tree fs.FS, name string) error {
	into, err := readYAML(b.tree, n.name)
	if err != nil {
		return fmt.Errorf("merge into %s of the artifact: %w", n.name, err)
	}
	from, err := readYAML(tree, name)
	if err != nil {
		return fmt.Errorf("merge %s: %w", name, err)
	}
	text, err := yaml.Marshal(overlay(into, from))
	if err != nil {
		return err
	}
	if b.merged += len(text); b.merged > maxMerged {
		return fmt.Errorf("all that is merged has more than %d MiB", maxMerged>>20)
	}
	b.bytes += int64(len(text)) - n.size
	n.tree, n.merged, n.size = nil, text, int64(len(text))
	return b.within(n.name)
}

// separator stands before each YAML document of a file but the first.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t\r]|$)`)

// readYAML reads the documents of a file as one mapping.
func readYAML(tree fs.FS, name string) (map[string]any, error) {
	info, err := fs.Stat(tree, name)
	if err == nil && info.Size() > maxYAML {
		err = fmt.Errorf("it has more than %d MiB", maxYAML>>20)
	}
	if err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	for _, document := range separator.Split(string(text), -1) {
		var one map[string]any
		if err := yaml.Unmarshal([]byte(document), &one, exact); err != nil {
			return nil, fmt.Errorf("it is no YAML with a mapping in each document: %w", err)
		}
		all = overlay(all, one)
	}
	return all, nil
}

// exact keeps numbers as they are written.
func exact(d *json.Decoder) *json.Decoder {
	d.UseNumber()
	return d
}

// overlay returns base with the values of over: mappings are merged, all else is replaced.
func overlay(base, over map[string]any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, base)
	for key, value := range over {
		into, was := out[key].(map[string]any)
		from, is := value.(map[string]any)
		if was && is {
			value = overlay(into, from)
		}
		out[key] = value
	}
	return out
}
