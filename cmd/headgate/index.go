package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source"
)

func (p *program) index() *cobra.Command {
	c := &cobra.Command{
		Use:   "index",
		Short: "Look into indexes of charts",
		Args:  noCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.indexSearch())
	return c
}

type searchFlags struct {
	sourceFlags
	within string // range of versions
	devel  bool
}

func (p *program) indexSearch() *cobra.Command {
	f := &searchFlags{sourceFlags: sourceFlags{parallel: 1}}
	c := &cobra.Command{
		Use:   "search [-f FILE|DIR|-] SOURCE [NAME]...",
		Short: "Print the versions of charts, the newest first",
		Long: `Search prints the versions of the charts that are called NAME, or match it as a pattern such as 'app-*', the newest
first. Without NAME it lists all charts, each with its newest version. SOURCE is one of

  https://HOST/PATH      a repository of charts, whose index is fetched and not stored; http as well
  KIND/NAME              a PkgRepository of -f, which is fetched, or of the store, without -f
  FILE or -              an index; - is standard input
  DIR                    a directory with an index.yaml

Pre-releases are left out unless --devel is given or the range names one; what is malformed in an index is left
out, too. Memory is bounded by what is printed, whatever the size of the index: for a list of all charts by their
number, of which at most 100,000 are taken.

Exit codes: 0 something was found for each NAME, 1 something was not or failed, 2 usage.`,
		Example: `  headgate index search https://charts.example.org app --version "^1.2"
  headgate index search -f sources.yaml pkgrepository/charts -o json
  headgate index search ./repository 'app-*' --devel`,
		ValidArgsFunction: completeIndexes(&f.files, &f.store),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("version") && f.within == "" {
				return usage("--version must not be empty: say what is wanted, or leave it out")
			}
			return asFailure(p.runSearch(c.Context(), f, args))
		},
	}
	fl := c.Flags()
	registerFiles(c, &f.files)
	registerStore(c, &f.store)
	fl.StringVar(&f.within, "version", "", "only versions within the `RANGE`, or this one")
	fl.BoolVar(&f.devel, "devel", false, "pre-releases, too")
	fl.StringVar(&f.secrets, "secrets", "", "`DIR` of Secrets, as NAME/KEY or NAMESPACE/NAME/KEY; looked up after the documents, and before the variables HEADGATE_SECRET_NAME_KEY")
	fl.StringVar(&f.secret, "secret-ref", "", "`NAME` of the Secret with username and password for a URL, as spec.secretRef")
	fl.StringVar(&f.cert, "cert-secret-ref", "", "`NAME` of the Secret with ca.crt, or tls.crt and tls.key, for a URL, as spec.certSecretRef")
	f.registerNetworks(c)
	spanVar(c, &f.timeout, "timeout", 0, "bound of the whole command")
	registerLimit(c, &f.maxBytes)
	f.registerOutput(c, "table", "wide", "json", "yaml", "name")
	return c
}

func (p *program) runSearch(ctx context.Context, f *searchFlags, args []string) error {
	if len(args) == 0 {
		return usage("give an index: the URL of a repository, a file, a directory, or a PkgRepository")
	}
	search, err := newSearch(args[1:], f.within, f.devel)
	if err != nil {
		return err
	}
	s, err := p.open(&f.sourceFlags)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	r, err := p.openIndex(ctx, s, args[0])
	if err != nil {
		return about(shown(args[0]), err)
	}
	defer r.Close()
	if err := search.read(ctx, r); err != nil {
		return about(shown(args[0]), err)
	}
	if f.prints() {
		if err := search.print(p.stdout, f.output); err != nil {
			return err
		}
	}
	return search.missing()
}

// openIndex opens the index that an argument names. It can be read repeatedly.
func (p *program) openIndex(ctx context.Context, s *session, arg string) (io.ReadSeekCloser, error) {
	obj, err := s.repository(arg)
	if err != nil {
		return nil, err
	}
	if obj != nil {
		return s.fetchIndex(ctx, obj)
	}
	if arg == "-" {
		return spool(func(w io.Writer) error {
			_, err := io.Copy(w, p.stdin)
			return err
		})
	}
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		return os.Open(filepath.Join(arg, "index.yaml"))
	} else if err == nil {
		return os.Open(arg)
	}
	lookup := artifactLookup{store: s.flags.store}
	file, err := lookup.open(ctx, arg)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if !isIndex(lookup.found) {
		return nil, usage("is no PkgRepository: want one, or a URL, a file or a directory")
	}
	return spool(func(w io.Writer) error {
		_, err := io.Copy(w, file)
		return err
	})
}

// repository returns the PkgRepository whose index is to be fetched, nil when
// arg is not about one.
func (s *session) repository(arg string) (*source.PkgRepository, error) {
	adhoc := strings.Contains(arg, "://")
	if len(s.flags.files) == 0 && adhoc {
		return s.adhocRepository(arg)
	}
	if s.flags.secret != "" || s.flags.cert != "" {
		return nil, usage("--secret-ref and --cert-secret-ref go with a URL")
	}
	if len(s.flags.files) == 0 {
		return nil, nil
	}
	if adhoc {
		return nil, usage("-f goes with a PkgRepository of its objects: want pkgrepository/NAME")
	}
	found, err := s.set.Find(arg)
	if err != nil {
		return nil, &exitError{exitUsage, errors.Join(err, s.bad)}
	}
	repo, ok := found[0].(*source.PkgRepository)
	if len(found) > 1 || !ok {
		return nil, usage("names no single PkgRepository: want pkgrepository/NAME or pkgrepository/NAMESPACE/NAME")
	}
	return repo, nil
}

// fetchIndex fetches the index of a repository.
func (s *session) fetchIndex(ctx context.Context, repo *source.PkgRepository) (io.ReadSeekCloser, error) {
	if repo.Spec.Type == source.RepositoryOCI {
		return nil, usage("a registry has no index: its charts are repositories, and their versions tags")
	}
	return spool(func(w io.Writer) error {
		_, _, err := s.origins.Write(ctx, w, repo, s.env)
		return err
	})
}

// spool returns what write writes as a file, which is gone once it is closed.
func spool(write func(io.Writer) error) (io.ReadSeekCloser, error) {
	file, err := newPushArchive()
	if err != nil {
		return nil, err
	}
	if err = write(file); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
