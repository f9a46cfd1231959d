package notation

import "crypto/x509"

// What fuzz targets call.
var (
	ReadTrust     = readTrust
	EnvelopeOf    = envelopeOf
	CheckEnvelope = checkEnvelope
)

const (
	MaxSignature = maxSignature
	MaxKeyBits   = maxKeyBits
)

func (t *trust) Certificates() []*x509.Certificate { return t.certificates }

func (t *trust) Statement(repository string) (name, level string, err error) {
	s, err := t.statement(repository)
	if err != nil {
		return "", "", err
	}
	return s.name, s.level.Name, nil
}
