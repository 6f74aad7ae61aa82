"""``robust0 certify``: proofs for every image, tried by attacks, beside what an audit found."""
