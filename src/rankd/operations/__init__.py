"""Operations on an installation: verify, rebuild, move, import and export."""
