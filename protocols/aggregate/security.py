"""Why only sums open: the reduction to RLWE, with its loss for T rounds.

Scheme: private stream aggregation from lattices, as LaPS (Becker, Guajardo and Zimmermann, NDSS
2018), in the ring form of SLAP (Takeshita, Karl, Gong and Jung, J. Cryptology 2023) and TERSE
(Takeshita, Carmichael, Karl and Jung, SecureComm 2022). Party p sends in round t

    b_p = a_t s_p + e_p + m_p  mod (X^n + 1, Q),    coefficients 0 .. L - 1 only,

a_t uniform from the joint seed, s_p and every e_p from the discrete Gaussian D of std
sigma = NOISE_STD. The coordinator holds s = sum_p s_p and opens sum_p b_p - a_t s = e + m.

Claim. Let H >= 2 parties be honest. Coordinator and all other parties together, who also know s
and every sum m of the H, cannot tell the honest m_p from any others with the same sums, chosen
adaptively, over T rounds with N = n + L T coefficients drawn per party. Their advantage is at most

    2 (H - 1) (Adv_RLWE(n, Q, RLWE_STD; T ceil(L / n) samples) + N delta_hint) + 2 H N delta_table

of which all but Adv_RLWE is below 2^-80 for N = 10^9 and H = 50,
plus that of breaking X25519 with HKDF and ChaCha20, Ed25519, or the commitment to the joint seed.
Proof.
1. Two messages with the same sum differ by H - 1 moves m_i + d, m_j - d between neighbours. In
   each move give away the secrets and errors of all other parties: two parties are left, of whom
   s_1 + s_2 = h and, per round, e_1 + e_2 = h_t are known: T hints on errors, one on the secret.
   As h_t is known, b_2 follows from b_1, and nothing else depends on how m_1 and m_2 differ.
2. These hints are exact and linear. D(x) D(h - x) ~ exp(-(x - h/2)^2 / sigma^2): given h, s_1 is
   a discrete Gaussian of variance sigma^2 / 2 with centre h / 2. Likewise each e_1, on its own: the
   errors are independent, so T rounds never shrink the variance further.
3. Centre h / 2 may lie between integers, but RLWE is about centre 0. With
   RLWE_STD = sigma / 2, a sum of a centred draw of std RLWE_STD and one of centre h / 2 of the
   same std has that law up to delta_hint = 2 exp(-pi^2 RLWE_STD^2) = 2^-143.8 (Poisson summation,
   see `protocols.privacy.laws.grid`). So an RLWE sample a s' + e' of std RLWE_STD, plus a s'' + e''
   that the reduction draws, is a s_1 + e_1 given the hints; if RLWE samples look uniform, so does
   b_1, whatever m_1 is. This is Hint-RLWE: Kim, Lee, Seo and Song, CRYPTO 2023, Theorem 1, whose
   1 / sigma_0^2 = 2 (1 / sigma_1^2 + 1 / sigma_2^2) gives the same sigma_0 = sigma / 2.
4. The sampler's table is off by at most delta_table = 2^-119 per draw (`discrete`).

The halved std is the price of the fractional centre: with sigma = sqrt(2) 3.19, steps 1 and 2
alone give variance 3.19^2, but the reduction would only reach RLWE of std 2.26.

H = 1: the sum without the colluders' parts is the party's own vector. No encryption helps; the
privacy noise for P - 1 colluders covers it. No flooding is needed for any H: what opens besides m
is a sum of fresh errors, independent of the data and used once.

Not covered: a party can send a false vector, and anybody who is given s can open sums.
"""

from __future__ import annotations

RLWE_STD = 3.19
"""Std of secret and error in the RLWE problem that the security rests on (HEStd's table)."""

NOISE_STD = 2 * RLWE_STD
"""Std of every s_p and e_p, per coefficient [units of 2^-scale_bits]."""

TAIL = 12.0
"""Bounds are TAIL standard deviations; P(beyond) <= 2 exp(-TAIL^2 / 2) < 2^-102 a coefficient."""
