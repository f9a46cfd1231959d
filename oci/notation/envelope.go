package notation

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"

	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/notaryproject/tspclient-go"
	gocose "github.com/veraison/go-cose"

	"github.com/headgate-io/headgate/oci/internal/attempt"
)

// Bounds of the certificates in an envelope and in its timestamp, each. Whoever
// may push to the registry chooses them, and they are computed with before it
// is known whether anybody trusts them.
const (
	maxChain   = 16
	maxKeyBits = 8192 // of an RSA key: the time grows with the square
)

const timestampHeader = "io.cncf.notary.timestampSignature"

// unsigned is what an envelope says without a signature.
type unsigned struct {
	chain     [][]byte // certificates, DER
	timestamp []byte   // RFC 3161
}

// formats are the envelopes that are known, by media type.
var formats = map[string]func([]byte) (unsigned, error){
	jws.MediaTypeEnvelope:  decodeJWS,
	cose.MediaTypeEnvelope: decodeCOSE,
}

// checkEnvelope refuses an envelope that it would take too long to verify.
func checkEnvelope(envelope []byte, mediaType string) error {
	decode, known := formats[mediaType]
	if !known {
		return attempt.Refuse("its envelope is of type %.80q: want %s or %s", mediaType, jws.MediaTypeEnvelope, cose.MediaTypeEnvelope)
	}
	u, err := decode(envelope)
	if err != nil {
		return attempt.Refuse("integrity: its envelope cannot be parsed: %w", err)
	}
	if len(u.chain) > maxChain { // before they are parsed
		return attempt.Refuse("its chain has %d certificates, at most %d are allowed", len(u.chain), maxChain)
	}
	chain := make([]*x509.Certificate, len(u.chain))
	for i, der := range u.chain {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return attempt.Refuse("integrity: its certificate %d cannot be parsed: %w", i+1, err)
		}
	}
	if err := checkKeys(chain); err != nil || len(u.timestamp) == 0 {
		return err
	}
	token, err := tspclient.ParseSignedToken(u.timestamp)
	if err != nil {
		return nil // where timestamps count, it is found out that this is none
	}
	if len(token.SignerInfos) > maxChain {
		return attempt.Refuse("its timestamp has %d signers, at most %d are allowed", len(token.SignerInfos), maxChain)
	}
	return checkKeys(token.Certificates)
}

// checkKeys checks the bounds of certificates.
func checkKeys(certs []*x509.Certificate) error {
	if len(certs) > maxChain {
		return attempt.Refuse("its timestamp has %d certificates, at most %d are allowed", len(certs), maxChain)
	}
	for _, c := range certs {
		if bits := keyBits(c); bits > maxKeyBits {
			return attempt.Refuse("the key of %.80q in it has %d bits, at most %d are allowed", c.Subject, bits, maxKeyBits)
		}
	}
	return nil
}

// keyBits returns the length of an RSA key, 0 for others.
func keyBits(c *x509.Certificate) int {
	if key, ok := c.PublicKey.(*rsa.PublicKey); ok {
		return key.N.BitLen()
	}
	return 0
}

func decodeJWS(envelope []byte) (unsigned, error) {
	var e struct {
		Header struct {
			Chain     [][]byte `json:"x5c"`
			Timestamp []byte   `json:"io.cncf.notary.timestampSignature"`
		} `json:"header"`
	}
	err := json.Unmarshal(envelope, &e)
	return unsigned{e.Header.Chain, e.Header.Timestamp}, err
}

func decodeCOSE(envelope []byte) (unsigned, error) {
	var m gocose.Sign1Message
	if err := m.UnmarshalCBOR(envelope); err != nil {
		return unsigned{}, err
	}
	var u unsigned
	chain, _ := m.Headers.Unprotected[gocose.HeaderLabelX5Chain].([]any)
	for _, c := range chain {
		der, _ := c.([]byte)
		u.chain = append(u.chain, der)
	}
	u.timestamp, _ = m.Headers.Unprotected[timestampHeader].([]byte)
	return u, nil
}
