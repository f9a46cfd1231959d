package chart

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/signature"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// provenanceMode is the verification mode of a PkgRepository over HTTP.
const provenanceMode = "provenance"

// maxProvenance is the maximum size of a provenance file, in bytes.
const maxProvenance = 1 << 20

// checkProvenance returns an error unless text, whose signature was verified, describes c: it must
// have its name, its version, and the digest of its archive under the file name that the
// package manager uses.
func checkProvenance(text []byte, c *bundle.Chart) error {
	separator := []byte("\n...\n")
	about, sums, ok := bytes.Cut(text, separator)
	if !ok || bytes.Contains(sums, separator) {
		return errors.New("want Chart.yaml, a line of three dots, and the digests of files")
	}
	var chart map[string]any
	var digests map[string]map[string]string
	if err := yaml.UnmarshalStrict(about, &chart); err != nil {
		return fmt.Errorf("its Chart.yaml: %.300q", err.Error())
	}
	if err := yaml.UnmarshalStrict(sums, &digests); err != nil {
		return fmt.Errorf("its digests: %.300q", err.Error())
	}
	name, version := c.Metadata.Name, c.Metadata.Version
	if chart["name"] != name || chart["version"] != version {
		return fmt.Errorf("it is about chart %.200q in version %.200q, not %q in version %q", fmt.Sprint(chart["name"]), fmt.Sprint(chart["version"]), name, version)
	}
	file := name + "-" + version + ".tgz"
	digest, ok := digests["files"][file]
	switch {
	case !ok:
		return fmt.Errorf("it has no digest of %s", file)
	case !strings.HasPrefix(digest, "sha256:"):
		return fmt.Errorf("digest %.100q of %s: want sha256:HEX", digest, file)
	case digest != c.Digest:
		return fmt.Errorf("%s: %w", file, &artifact.DigestError{Want: digest, Got: c.Digest})
	}
	return nil
}

// errVerifyUnsupported is the error for a verification that a repository over HTTP cannot do.
var errVerifyUnsupported = transport.VerificationError(invalid(errors.New("spec.verify requires a PkgRepository of type oci: remove it, or name a keyring in spec.verify of the PkgRepository")))

func (u *chartRepository) trustFingerprint(ctx context.Context, trust *source.OCIRepositoryVerification) (string, error) {
	if trust != nil {
		return "", errVerifyUnsupported
	}
	if u.repo.Spec.Verify == nil {
		return "", nil
	}
	secret, _, err := u.keys(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	transport.HashInto(sum, provenanceMode)
	secret.HashInto(sum)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// keys returns the Secret of spec.verify, each value of which is a keyring, and the keys in it.
func (u *chartRepository) keys(ctx context.Context) (secret transport.Secret, keys *signature.Keys, err error) {
	const field = "spec.verify.secretRef of the PkgRepository"
	err = source.Within(ctx, timeout(u.repo), "read the Secret of spec.verify", func(ctx context.Context) (err error) {
		secret, err = u.secretReader.Read(ctx, &u.repo.Spec.Verify.SecretRef, field)
		return err
	})
	if err == nil {
		if keys, err = signature.ParseOpenPGP(secret.Data); err != nil {
			err = fmt.Errorf("%s: secret %s: %w", field, secret.Name, err)
		}
	}
	if err != nil {
		return transport.Secret{}, nil, transport.VerificationError(err)
	}
	return secret, keys, nil
}

// verify implements upstream. It uses the provenance file beside the chart, and keeps the
// chart that it downloads for fetch.
func (u *chartRepository) verify(ctx context.Context, s *selectedVersion, trust *source.OCIRepositoryVerification) (v source.Verification, err error) {
	if trust != nil {
		return v, errVerifyUnsupported
	}
	if u.repo.Spec.Verify == nil {
		return v, nil
	}
	_, keys, err := u.keys(ctx)
	if err != nil {
		return v, err
	}
	got, err := u.download(ctx, s)
	if err != nil {
		return v, err
	}
	signer, err := u.provenanceSigner(ctx, got, keys)
	if err != nil {
		got.Close()
		return v, stepError(source.StepVerify, verifyFailed, fmt.Errorf("chart %s %s: %w", s.name, s.version, err))
	}
	s.release()
	s.verified = got.Chart
	return source.Verification{Mode: provenanceMode, Signer: signer,
		Message: fmt.Sprintf("verified provenance of chart %s in version %s with key '%s'", s.name, s.version, signer)}, nil
}

// provenanceSigner returns the signer of the provenance file of got, which came with it or
// lies beside it.
func (u *chartRepository) provenanceSigner(ctx context.Context, got downloadedChart, keys *signature.Keys) (signer string, err error) {
	at := *got.from
	if at.Scheme != "oci" {
		at.Path += ".prov"
		if at.RawPath != "" {
			at.RawPath += ".prov"
		}
		err = u.get(ctx, &at, "download provenance file", func(_ int64, content io.Reader) (err error) {
			got.prov, err = readProvenance(content)
			return err
		})
	} else if got.prov == nil {
		err = fmt.Errorf("%s has none: %w", redact.URL(&at), fs.ErrNotExist)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: there is no provenance file: %w", source.ErrVerification, err)
	}
	if err != nil {
		return "", err
	}
	text, signer, err := keys.VerifyText(got.prov, time.Now())
	if err == nil {
		err = checkProvenance(text, got.Chart)
	}
	if err != nil {
		return "", fmt.Errorf("%w: provenance file %s: %w", source.ErrVerification, redact.URL(&at), err)
	}
	return signer, nil
}

// readProvenance reads a provenance file.
func readProvenance(content io.Reader) ([]byte, error) {
	file, err := io.ReadAll(io.LimitReader(content, maxProvenance+1))
	if err == nil && len(file) > maxProvenance {
		err = &artifact.LimitError{What: "bytes", Limit: maxProvenance}
	}
	return file, err
}
