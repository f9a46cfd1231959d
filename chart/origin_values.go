package chart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/source"
)

// Bounds of values files, in bytes: of one, and of all together.
const (
	maxValues    = 1 << 20
	maxAllValues = 16 << 20
)

// badValues says what is wrong with spec.valuesFiles.
func badValues(err error) error {
	return &source.StepError{Step: source.StepBuild, Reason: "ValuesFilesError", Err: invalid(err)}
}

// readValues reads a values file of a tree. The error wraps fs.ErrNotExist when
// there is none.
func readValues(tree fs.FS, name string) ([]byte, error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoValues
	}
	text, err := io.ReadAll(io.LimitReader(f, maxValues+1))
	if err == nil && len(text) > maxValues {
		err = errLongValues
	}
	return text, err
}

var (
	errNoValues   = errors.New("it is no file")
	errLongValues = fmt.Errorf("it has more than %d bytes", maxValues)
)

// A borrowed is what the values files of other sources hold.
type borrowed struct {
	Key     string            `json:"key,omitempty"`     // of the artifacts that they are in
	Digests map[string]string `json:"digests,omitempty"` // by the element of spec.valuesFiles, "" where there is no file
}

// differs names a file that holds something else than before, "" when none does.
func (f borrowed) differs(before borrowed) string {
	for text, digest := range f.Digests {
		if had, ok := before.Digests[text]; ok && had != digest {
			return fmt.Sprintf("changed: values file %s", text)
		}
	}
	return ""
}

// borrow returns what the values files of other sources hold now. Artifacts
// that it is known of are not read again.
func (o *Origin) borrow(ctx context.Context, s *sources, before borrowed) (borrowed, error) {
	now := borrowed{Digests: map[string]string{}}
	var parts []string
	for _, v := range s.values {
		if v.Source != (source.Reference{}) {
			parts = append(parts, v.Text, s.input(v.Source).Digest)
		}
	}
	if len(parts) == 0 {
		return borrowed{}, nil
	}
	if now.Key = fingerprint(parts...); now.Key == before.Key {
		return before, nil
	}
	shelf := &shelf{origin: o, sources: s, trees: map[string]*artifact.Tree{}}
	defer shelf.close()
	for _, v := range s.values {
		if v.Source == (source.Reference{}) {
			continue
		}
		text, err := shelf.read(ctx, v)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			now.Digests[v.Text] = ""
		case err != nil:
			return borrowed{}, err
		default:
			sum := sha256.Sum256(text)
			now.Digests[v.Text] = hex.EncodeToString(sum[:])
		}
	}
	return now, nil
}

// A shelf holds the trees of the sources that a chart is made of, each opened once.
type shelf struct {
	origin  *Origin
	sources *sources
	trees   map[string]*artifact.Tree // by digest
}

// tree returns the artifact of ref.
func (s *shelf) tree(ctx context.Context, ref source.Reference) (*artifact.Tree, error) {
	digest := s.sources.input(ref).Digest
	if tree := s.trees[digest]; tree != nil {
		return tree, nil
	}
	tree, err := s.origin.openTree(ctx, s.sources, ref)
	if err == nil {
		s.trees[digest] = tree
	}
	return tree, err
}

// read reads a values file of another source.
func (s *shelf) read(ctx context.Context, v source.ValuesFile) ([]byte, error) {
	tree, err := s.tree(ctx, v.Source)
	if errors.Is(err, artifact.ErrFormat) {
		return nil, badValues(fmt.Errorf("values file %q: %s: %w: values come from an archive of files", v.Text, v.Source, err))
	}
	if err != nil {
		return nil, s.sources.unreadable(v.Source, err)
	}
	return valuesOf(tree, v)
}

// valuesOf reads the values file v of tree.
func valuesOf(tree fs.FS, v source.ValuesFile) ([]byte, error) {
	text, err := readValues(tree, v.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badValues(fmt.Errorf("values file %q: %w: name one that exists, or set spec.ignoreMissingValuesFiles", v.Text, fs.ErrNotExist))
	}
	if err != nil {
		return nil, badValues(fmt.Errorf("values file %q: %w", v.Text, err))
	}
	return text, nil
}

// close ends the trees.
func (s *shelf) close() error {
	var err error
	for _, tree := range s.trees {
		err = errors.Join(err, tree.Close())
	}
	clear(s.trees)
	return err
}

// merged returns what the values files make together, nil when there is nothing
// to replace, and which of them there are. own is where files of no other source
// are looked up (reference A14).
func (s *shelf) merged(ctx context.Context, own fs.FS) (values []byte, used []string, err error) {
	if !s.sources.merges() {
		return nil, s.origin.chart.Spec.ValuesFiles, nil
	}
	var texts [][]byte
	size := 0
	for _, v := range s.sources.values {
		var text []byte
		if v.Source == (source.Reference{}) {
			text, err = valuesOf(own, v)
		} else {
			text, err = s.read(ctx, v)
		}
		if errors.Is(err, fs.ErrNotExist) && s.origin.chart.Spec.IgnoreMissingValuesFiles {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if size += len(text); size > maxAllValues {
			return nil, nil, badValues(fmt.Errorf("values file %q: there are more than %d bytes of values up to here", v.Text, maxAllValues))
		}
		texts, used = append(texts, text), append(used, v.Text)
	}
	if len(texts) == 0 {
		return nil, used, nil
	}
	values, err = bundle.Merge(texts...)
	for i := 0; err != nil && i < len(texts); i++ {
		if _, one := bundle.Merge(texts[i]); one != nil {
			err = fmt.Errorf("values file %q: %w", used[i], one)
			break
		}
	}
	if err != nil {
		return nil, nil, badValues(err)
	}
	return values, used, nil
}
