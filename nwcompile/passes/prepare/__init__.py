"""Prepare: a network as the chip can run it, before its numbers are chosen.

stage       function                           what it does
normalize   normalize.py:normalize             batch norm, pooling and chained linear maps into connections
            fold.py:compose                    products of linear maps
legalize    unmet_taps.py:without_unmet_taps   kernels without the taps that only padding meets
schedule    schedule.py:schedule               when each layer works
"""
