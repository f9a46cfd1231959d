package lfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Folder has the objects of a repository on this machine. It implements [Source].
type Folder struct {
	Repository string // the path that the user knows
	Dir        string // of objects: lfs/objects in the repository
}

// Fetch implements [Source].
func (f Folder) Fetch(ctx context.Context, objects []Object, spool *Spool) error {
	for _, o := range objects {
		if err := f.fetch(ctx, o, spool); err != nil {
			return fmt.Errorf("git lfs: %s: %w", describe(o), err)
		}
	}
	return nil
}

func (f Folder) fetch(ctx context.Context, o Object, spool *Spool) error {
	name := filepath.Join(f.Dir, o.OID[:2], o.OID[2:4], o.OID)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("the local repository %s does not have it: run git lfs fetch there: %w", f.Repository, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	return spool.Receive(ctx, o, in)
}

// Close implements [Source].
func (Folder) Close() error { return nil }
