package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// directory returns the origin that reads the directory which stands in for the
// bucket; ok is false when none does.
func (o *Origin) directory() (dir source.Origin, ok bool, err error) {
	spec := &o.bucket.Spec
	name, ok := o.env.Local[localName(spec)]
	if !ok {
		return nil, false, nil
	}
	text, err := localRules(name)
	if err != nil {
		return nil, true, fmt.Errorf("local directory %s: %w", name, err)
	}
	ignore := ignoreOf(spec, text)
	ignore.File = ""                    // those of directories do not count
	ignore.Extra += "\n!/" + ignoreFile // it is in the artifact, as that of a bucket is
	view := source.DirView{Ignore: ignore}
	if spec.Prefix != "" {
		view.Select = func(ctx context.Context, tree fs.FS) (fs.FS, error) { return prefixed(ctx, tree, spec.Prefix) }
	}
	return source.Dir(o.bucket, name, view), true, nil
}

// localRules returns the text of .sourceignore at the top of a directory, "" when there is none.
func localRules(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	switch info, err := root.Lstat(ignoreFile); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return "", nil
	case err != nil:
		return "", err
	}
	f, err := root.Open(ignoreFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readRules(f)
}

// readRules reads the text of .sourceignore.
func readRules(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxRules+1))
	if err == nil && len(text) > maxRules {
		err = fmt.Errorf("%s has more than %d bytes: shorten it", ignoreFile, maxRules)
	}
	return string(text), err
}

const maxRules = 1 << 20 // bytes of .sourceignore

// ignoreOf returns the ignore rules of a bucket with text in .sourceignore.
func ignoreOf(spec *source.BucketSpec, text string) artifact.Ignore {
	ignore := artifact.Ignore{File: ignoreFile, Top: text}
	if spec.Ignore != nil {
		ignore.Extra = *spec.Ignore
	}
	return ignore
}

// prefixed returns the files of tree whose paths begin with prefix, and
// .sourceignore: to rules, all that is in the directories on the way is ignored
// but what goes on with the prefix.
func prefixed(ctx context.Context, tree fs.FS, prefix string) (fs.FS, error) {
	patterns, at := []string{"/*", "!/" + ignoreFile}, "/"
	if dir, _ := path.Split(prefix); dir == "" || fs.ValidPath(strings.TrimSuffix(dir, "/")) { // else no path begins so
		parts := strings.Split(glob.Replace(prefix), "/")
		for _, part := range parts[:len(parts)-1] {
			at += part + "/"
			patterns = append(patterns, "!"+at, at+"*")
		}
		patterns = append(patterns, "!"+at+parts[len(parts)-1]+"*")
	}
	rules, err := artifact.Ignore{Base: patterns}.Compile(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("spec.prefix: %w", err)
	}
	return rules.View(context.WithoutCancel(ctx), tree), nil // of a spec, and read by later steps
}

// glob quotes what is special in a pattern.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, ` `, `\ `)
